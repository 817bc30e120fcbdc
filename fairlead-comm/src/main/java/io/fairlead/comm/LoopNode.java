package io.fairlead.comm;

import org.jspecify.annotations.Nullable;

/**
 * Work for the communication thread: a link of its intrusive queue. Queued once.
 *
 * <p>The queue keeps the node that it ran last until there is another one, which may be never. So a
 * node lets go of what is not the engine's as it runs.
 */
abstract class LoopNode {

  /** Written by the producer that queues the next node, read by the loop: release / acquire. */
  volatile @Nullable LoopNode next;

  /** On the communication thread. Must not block. */
  abstract void run();

  /**
   * Instead of {@link #run} when the communication thread has ended with its communicator: on the
   * queueing thread, whatever its role, so it must not enter the transport.
   */
  void late() {}
}
