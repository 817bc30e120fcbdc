package io.fairlead.comm.wire;

import io.fairlead.comm.spi.ThreadLevel;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/**
 * Moves packets and bulk memory between ranks. Knows nothing of channels, tags of users, blobs or
 * credits: all of that is the core's, {@code WireTransport}, which is the only caller.
 *
 * <p><b>Threads.</b> {@link #threadLevel()} says who may call, FUNNELED or SERIALIZED: the core
 * needs no more than one call at a time and asks for none. The engine keeps to it, so a wire need
 * not check. {@link #close} is called by the thread that opened the wire.
 *
 * <p><b>No call blocks</b> or waits for a peer; nothing moves, and nothing ends, except inside
 * {@link #poll}. A wire may hand out a failure of a post in the next poll; no call but the
 * constructor throws for a reason that a peer or the library caused.
 *
 * <p><b>Packets</b> are short, up to {@link #packetBytes}. They are received without being asked
 * for, into memory that the wire has posted ahead. Packets of one rank to another are handed over
 * in the order sent; there is no order between peers. The core has at most {@link #packetsPerPeer}
 * packets on their way to a peer that the peer has not yet been handed, so the memory posted ahead
 * is what a flood can take.
 *
 * <p><b>Bulk</b> is native memory of up to {@link #bulkBytesMax}, sent and received under a bulk
 * tag. Between two ranks, sends and receives of the same tag are matched in the order posted. A
 * send may be posted before its receive or after. The core uses a tag again only after all that it
 * stood for has ended on the receiving side. Nothing orders bulk and packets, or bulk of different
 * tags. A send of fewer bytes than the receive has room for is right, and so is one of none: it is
 * how a sender says that it has nothing to give.
 *
 * <p><b>A rank is its own peer</b> too: all of this works to {@link #rank()} itself.
 *
 * <p><b>Performance.</b> On a native wire {@link #send} is one native call, {@link #poll} is one as
 * long as nothing came; neither allocates.
 */
public interface Wire extends AutoCloseable {

  /** A packet is at least so long. */
  int PACKET_BYTES_LEAST = 512;

  /** At least so many tags, so that so many transfers to a rank may be live. */
  int BULK_TAGS_LEAST = 64;

  /** At least so many packets may be on their way from one peer; 64 are better. */
  int PACKETS_PER_PEER_LEAST = 16;

  /** What it is, for reports: the library and its version. */
  String name();

  int rank();

  int size();

  /** {@link ThreadLevel#FUNNELED} or above. */
  ThreadLevel threadLevel();

  /**
   * How long a packet may be, the core's header of 64 bytes or less included: best the most that
   * the library sends without asking the receiver first. The same on every rank, which the core
   * checks.
   */
  int packetBytes();

  /** See above; the same on every rank, which the core checks. */
  int packetsPerPeer();

  /** Bulk tags are 0 to this minus one. */
  int bulkTags();

  /** The most bytes of one bulk send or receive; the core splits what is longer. */
  long bulkBytesMax();

  /**
   * Takes an empty packet to fill.
   *
   * @return null: all are on their way; there will be one again after some poll
   */
  @Nullable Packet take();

  /** Gives a packet back unsent. */
  void give(Packet packet);

  /**
   * Sends the first {@code bytes} of a packet, which becomes the wire's. Never refuses. That the
   * packet has gone is not reported; that it cannot go is: {@link Listener#lost}.
   */
  void send(int peer, Packet packet, int bytes);

  /**
   * Sends memory.
   *
   * @param tag 0 to {@link #bulkTags} minus one
   * @param memory native, at most {@link #bulkBytesMax} long, maybe empty; read until {@code
   *     transfer} ends. The core has seen that it is alive and may be reached by this thread, and
   *     that is all that can be seen
   */
  void sendBulk(int peer, int tag, MemorySegment memory, Transfer transfer);

  /**
   * Receives memory. Never refuses: the core has at most {@link #bulkTags} tags in use.
   *
   * @param memory native, at most {@link #bulkBytesMax} long; written until {@code transfer} ends
   */
  void receiveBulk(int peer, int tag, MemorySegment memory, Transfer transfer);

  /**
   * Makes progress: hands over what came and ends what ended, a bounded batch of each, so that the
   * caller gets to other work.
   *
   * @return how many packets were handed over and transfers ended
   */
  int poll(Listener listener);

  /**
   * Who polls will sleep if the next poll finds nothing, and {@link #mayRest} says that it may.
   * Once this was called, what comes for this rank, and what it begins itself, ends the rest and
   * runs {@code bell}.
   *
   * @param bell wakes who polls; always the same. Runs on any thread, also inside calls of this
   *     wire; never blocks
   * @return false: this wire cannot do that, and has to be polled again and again
   */
  default boolean announceRest(Runnable bell) {
    return false;
  }

  /**
   * After an announcement, and a poll that found nothing: whether nothing is in flight that needs
   * polls.
   */
  default boolean mayRest() {
    return false;
  }

  /** Whether the rest that was announced has not ended. Any thread; never blocks. */
  default boolean isResting() {
    return false;
  }

  /** Who polls does not sleep any more: ends the rest, without the bell. By who polls. */
  default void endRest() {}

  /**
   * The core waits for a peer inside {@code close}, and has found nothing to do: lets others run
   * for a moment. Never longer than some 100 µs.
   */
  void pause();

  /**
   * A rank failed, or did not answer in time, so that not all ranks can be expected to close in
   * order: {@link #close} waits for none of them. Called before it, as soon as the core knows.
   */
  default void abandon() {}

  /**
   * Lets go of everything; called once. All that this rank sent has been handed over by then,
   * unless a rank failed or did not answer. Memory of transfers that are live is touched no more
   * when this returns; where the library cannot promise that, the wire keeps such memory that is
   * its own for good, and says so in the log.
   */
  @Override
  void close();

  /**
   * Takes what a poll found; the core. Called with no lock of the wire held; may post to the wire,
   * but not poll it.
   */
  interface Listener {

    /**
     * A packet came.
     *
     * @param memory the packet's memory, all of it, so that nothing need be sliced; the wire's
     *     again when this returns, to be posted at once
     * @param bytes how much of it came
     */
    void packet(int source, MemorySegment memory, int bytes);

    /**
     * Nothing can be sent to a peer, or received from it, any more: it died, or the library reports
     * an error on packets to or from it. Transfers with it may be left as they are; the core
     * expects nothing of them. Said once for each peer at least.
     *
     * @param peer a rank, or -1: it is not known which, or all of them
     */
    void lost(int peer, Throwable cause);
  }
}
