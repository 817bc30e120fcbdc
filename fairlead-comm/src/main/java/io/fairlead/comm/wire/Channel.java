package io.fairlead.comm.wire;

import io.fairlead.comm.spi.MessageListener;
import io.fairlead.comm.spi.Transport;
import java.util.ArrayDeque;
import java.util.BitSet;
import java.util.Queue;
import org.jspecify.annotations.Nullable;

/** One channel, as one rank sees it. */
final class Channel {
  /** From so many on, messages that were taken back are swept out when others come. */
  private static final int SWEEP_MIN = 64;

  final int number;
  private final int size;
  private final BitSet gone = new BitSet();
  private final BitSet seen = new BitSet();
  private @Nullable Flow @Nullable [] flows;

  /** This rank knows the channel; else only peers do, so far. */
  boolean opened;

  /** This rank's part is over. */
  boolean closed;

  /** And {@code closeChannel} waits for nothing any more. */
  boolean finished;

  /** Who opened it, to tell a number that two channels would share. */
  long name;

  @Nullable MessageListener listener;

  /** Messages that were not handed to the listener yet, in the order in which they came. */
  final Queue<WireArrival> arrived = new ArrayDeque<>();

  /** So many of them before the next sweep: twice what the last one left. */
  private int sweepAt = SWEEP_MIN;

  /** Transfers to this rank that are going on. */
  int landing;

  Channel(int number, int size) {
    this.number = number;
    this.size = size;
  }

  /** A message waits to be handed to the listener, which may never come. */
  void arrive(WireArrival arrival) {
    if (arrived.size() >= sweepAt) {
      arrived.removeIf(each -> each.state == WireArrival.State.OVER);
      sweepAt = Math.max(SWEEP_MIN, 2 * arrived.size());
    }
    arrived.add(arrival);
  }

  /** Whether it was opened here as one. */
  boolean isChildOf(Channel parent) {
    return opened
        && number != Transport.ROOT_CHANNEL
        && (int) (name >>> Integer.SIZE) == parent.number;
  }

  boolean isGone(int peer) {
    return gone.get(peer);
  }

  /** False: it was gone already. */
  boolean leave(int peer) {
    boolean first = !gone.get(peer);
    gone.set(peer);
    return first;
  }

  /** The peer has seen that this rank's part is over. */
  void seen(int peer) {
    seen.set(peer);
  }

  /** Whether nothing more comes from the peer. */
  boolean isQuiet(int peer) {
    return seen.get(peer) || gone.get(peer);
  }

  /** The messages from one peer. */
  Flow flow(Peer peer) {
    @Nullable Flow[] known = flows;
    if (known == null) {
      known = new @Nullable Flow[size];
      flows = known;
    }
    Flow flow = known[peer.rank];
    if (flow == null) {
      flow = new Flow(this, peer);
      known[peer.rank] = flow;
    }
    return flow;
  }

  /** Nobody but this rank is left. */
  boolean isAlone(int rank) {
    int others = gone.cardinality() - (gone.get(rank) ? 1 : 0);
    return size > 1 && others == size - 1;
  }

  boolean isForgettable(int rank) {
    return finished && (size == 1 || isAlone(rank));
  }
}
