package io.fairlead.comm.spi;

import java.lang.foreign.MemorySegment;
import java.util.List;

/**
 * One rank's way to the others.
 *
 * <p><b>Threads.</b> {@link #threadLevel()} says who may call; the engine keeps to it, so a
 * transport need not check. No call blocks or waits for a peer, except {@link #closeChannel} and
 * {@link #close}. Below {@link ThreadLevel#MULTIPLE} no call suspends a virtual thread either, not
 * even for a contended lock: another one on the same platform thread would come in meanwhile.
 *
 * <p><b>Order.</b> Sends of one source to one target with the same channel, traffic and tag are
 * matched in the order in which they were posted, receives likewise. A receive from {@link #ANY}
 * and one from a named rank that could both take a message: the older takes it. Active messages
 * arrive in the order posted by their source.
 *
 * <p><b>Memory.</b> What waits for a receiver is bounded: within the bound a message is copied and
 * its sender told it is sent; beyond it, the sender's request waits and its memory holds the data.
 *
 * <p><b>Ends.</b> Every request ends: done, failed, or withdrawn. Nothing is dropped in silence.
 */
public interface Transport extends AutoCloseable {

  /** The source of a receive that takes a message from any rank. */
  int ANY = -1;

  /** The channel that exists from the start. */
  int ROOT_CHANNEL = 0;

  String name();

  int rank();

  int size();

  ThreadLevel threadLevel();

  TransportCaps caps();

  /**
   * The channel that is the {@code index}-th child of {@code parent}: the same answer on every
   * rank, and at once, whether the others have asked yet or not.
   */
  int openChannel(int parent, int index);

  void send(SendRequest request);

  void receive(ReceiveRequest request);

  /** Sends an active message. */
  void message(MessageRequest request);

  /** Sets who takes the active messages of a channel; once. Those that came before wait for it. */
  void listen(int channel, MessageListener listener);

  /**
   * Lets peers put into and get from {@code segment}; the key is to be sent to them.
   *
   * @throws TransportException if this transport is closed, or a rank has failed: no peer could use
   *     it
   */
  long expose(MemorySegment segment);

  /** Ends an exposure. Copies that began go on to their end. */
  void conceal(long key);

  /** Copies {@link CopyRequest#local()} to what a peer exposed. */
  void put(CopyRequest request);

  /** Copies from what a peer exposed into {@link CopyRequest#local()}. */
  void get(CopyRequest request);

  /**
   * Withdraws a send, receive or message.
   *
   * @return true: it is gone, and no callback will come. False: it is done, or so far on its way
   *     that it will be; when this returns, a receive's segments are written no more
   */
  boolean cancel(Request request);

  /**
   * Looks for progress; needed if {@link TransportCaps#progress()}.
   *
   * @return how many requests it ended; not 0 also if it found something that ended none, so that
   *     whoever polls does not rest yet
   */
  int poll();

  /**
   * Who polls will sleep for long if the next poll finds nothing, and {@link #mayRest} says that it
   * may. Once this was called, whatever comes for this rank, and whatever is posted here that needs
   * polls, ends the rest and runs {@code bell}. The poll must come after this call: what came
   * before it rings nobody.
   *
   * @param bell wakes who polls; always the same. Runs on any thread, also inside calls of this
   *     transport; never blocks
   * @return false: nobody would ring, so it has to be polled again and again
   */
  default boolean announceRest(Runnable bell) {
    return false;
  }

  /**
   * After an announcement, and a poll that found nothing, in the same turn: whether nothing is on
   * its way that needs polls.
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

  /** This rank cannot go on: every request of every rank, pending or new, fails with the cause. */
  void abort(Throwable cause);

  /**
   * Ends this rank's part in a channel. Its pending requests fail as {@code CLOSED}; peers'
   * receives that only this rank could serve fail as {@code PEER_CLOSED}, as do later sends to it.
   * What it had sent and was told is sent stays to be received. Arrivals that were handed over and
   * not accepted may still be refused; a landing that has begun ends soon, without another call.
   * The channel's children end with it, first, also those that only peers have opened or will open:
   * they cannot wait there for a rank that never comes. Idempotent.
   *
   * @return what was sent to this rank and not received
   */
  List<Undelivered> closeChannel(int channel);

  /** Closes every channel, then the transport. Idempotent. */
  @Override
  void close();
}
