package io.fairlead.comm.wire;

import io.fairlead.comm.spi.Transport;
import io.fairlead.comm.spi.TransportException;
import io.fairlead.comm.spi.TransportSettings;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * What the parts of one rank's transport share. One thread at a time is in here, by the rule of the
 * wire's thread level, so nothing is guarded.
 */
final class Rank {
  /** Pieces that are copied through memory of the transport's own. */
  static final long STAGED_PIECE = 256 << 10;

  /** Pieces of one transfer on their way at a time. Both sides count on it: see {@link Inbound}. */
  static final int WINDOW = 4;

  /** Memory for pieces that wait to be sent, and as much again for those to be received. */
  static final long STAGING_BYTES = 8 << 20;

  final Wire wire;
  final int number;
  final int size;
  final int payloadMax;
  final Peer[] peers;
  final Ops ops = new Ops();
  final Blocks sendStaging = new Blocks(STAGING_BYTES);

  /** What is kept of messages that nobody asked for; bounded by credit. */
  final Blocks kept;

  /** What each peer may use of it, and what may be used for longer messages, in bytes. */
  final int grantMessages;

  final int grantBytes;
  final long landedBytesMax;

  private final Landings landings;
  private final Departures departures;
  private final Copies copies;
  private final Map<Integer, Channel> channels = new HashMap<>();
  private final Set<Integer> forgotten = new HashSet<>();
  private Channel lastChannel;
  private final List<Peer> dirty = new ArrayList<>();
  private final List<Peer> flushing = new ArrayList<>();

  /** Inside a poll, which sends at its end what waits to go. */
  boolean polling;

  /** Requests ended since somebody asked. */
  int ends;

  /** Found, and not yet told to everybody. */
  private @Nullable TransportException found;

  /** The world is over, for this reason. */
  @Nullable TransportException fault;

  Rank(Wire wire, TransportSettings settings) {
    this.wire = wire;
    this.number = wire.rank();
    this.size = wire.size();
    this.payloadMax = wire.packetBytes() - Frame.HEADER;
    // Half for messages that come whole, half for those that are taken for want of a receive.
    this.landedBytesMax = settings.eagerBytes() - settings.eagerBytes() / 2;
    this.grantBytes = (int) Math.min(settings.eagerBytes() / 2 / size, Integer.MAX_VALUE / 2);
    this.grantMessages = share(settings.eagerMessages(), size);
    this.kept = new Blocks(settings.eagerBytes());
    this.peers = new Peer[size];
    Arrays.setAll(peers, peer -> new Peer(this, peer, grantMessages, grantBytes));
    this.landings = new Landings(this);
    this.departures = new Departures(this);
    this.copies = new Copies(this);
    this.lastChannel = new Channel(Transport.ROOT_CHANNEL, size);
    lastChannel.opened = true;
    channels.put(Transport.ROOT_CHANNEL, lastChannel);
  }

  /** At least one for each, if there is any. */
  private static int share(int messages, int size) {
    return messages == 0 ? 0 : Math.max(1, messages / size);
  }

  // --- channels ---------------------------------------------------------------------------------

  /** The channel of this number, which a peer may have used before it was opened here. */
  Channel channel(int wanted) {
    Channel last = lastChannel;
    if (last.number == wanted) {
      return last;
    }
    Channel found = channels.computeIfAbsent(wanted, key -> new Channel(key, size));
    lastChannel = found;
    return found;
  }

  /** The channel, if it was opened here and not forgotten. */
  @Nullable Channel known(int wanted) {
    Channel channel = lastChannel.number == wanted ? lastChannel : channels.get(wanted);
    return channel == null || !channel.opened ? null : channel;
  }

  List<Channel> channels() {
    return new ArrayList<>(channels.values());
  }

  /** Every rank has closed it. The root stays, so that there is always a last one. */
  void forget(Channel channel) {
    if (channel.number != Transport.ROOT_CHANNEL) {
      channels.remove(channel.number);
      forgotten.add(channel.number);
      lastChannel = channel(Transport.ROOT_CHANNEL);
    }
  }

  /** Whether there was such a channel, which every rank has closed. */
  boolean isForgotten(int wanted) {
    return forgotten.contains(wanted);
  }

  // --- peers to look after ----------------------------------------------------------------------

  void dirty(Peer peer) {
    if (!peer.dirty) {
      peer.dirty = true;
      dirty.add(peer);
    }
  }

  /** Whether nothing waits to go, and nothing to be told. */
  boolean isQuiet() {
    return dirty.isEmpty() && found == fault;
  }

  /** Sends what waits to go to the peers that something happened to. */
  void flush() {
    if (dirty.isEmpty()) {
      return;
    }
    flushing.addAll(dirty);
    dirty.clear();
    for (Peer peer : flushing) {
      peer.dirty = false;
    }
    for (Peer peer : flushing) {
      flush(peer);
    }
    flushing.clear();
  }

  /** After something that is done outside a poll too. */
  void leave() {
    if (!polling) {
      flush();
    }
  }

  private void flush(Peer peer) {
    if (peer.leaving) {
      leaveIt(peer);
      return;
    }
    boolean clean = peer.flushControl();
    if (!peer.isOver() && fault == null) {
      clean &= departures.flush(peer);
      clean &= copies.flush(peer);
    }
    clean &= peer.flushAck();
    if (!clean) {
      dirty(peer);
    }
  }

  /**
   * A peer that leaves wants to know that it was heard, and nothing else. What waits for room on
   * the way to it could wait for ever: once it knows, it may be gone before it makes any.
   */
  private void leaveIt(Peer peer) {
    if (peer.flushAck()) {
      peer.drop();
    } else {
      dirty(peer);
    }
  }

  Landings landings() {
    return landings;
  }

  Copies copies() {
    return copies;
  }

  Departures departures() {
    return departures;
  }

  // --- failures ---------------------------------------------------------------------------------

  /** The world cannot go on; everybody is told when the call that found it is left. */
  void fail(TransportException cause) {
    if (found == null) {
      found = cause;
    }
  }

  /** A peer said what cannot be. Nothing it says is looked at any more. */
  void lie(Peer peer, String what) {
    fail(Faults.impossible(peer.rank, what));
  }

  @Nullable TransportException takeFound() {
    return fault != null ? null : found;
  }

  /** Whether what comes now is of no use. */
  boolean isOver() {
    return found != null || fault != null;
  }
}
