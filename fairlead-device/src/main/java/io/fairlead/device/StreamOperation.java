package io.fairlead.device;

/**
 * The driver call that enqueues one operation.
 *
 * <p>Runs on the caller's thread while a context may be bound: it calls the driver and nothing that
 * could suspend a task. If it throws, the operation counts as not enqueued, so it makes one
 * enqueuing call, or makes sure that only its last one can fail.
 */
@FunctionalInterface
public interface StreamOperation {
  /**
   * Makes the call.
   *
   * @param stream the driver's handle of the stream
   * @param addresses the operands' device addresses, in order; valid during the call only, and
   *     possibly longer than the operands
   */
  void run(long stream, long[] addresses);
}
