package io.fairlead.task;

/**
 * Decides when a call may use this much memory.
 *
 * <p>Requests should be granted in the order in which they come, or a large one may starve behind
 * small ones. Nothing is held while a request waits but what outer calls hold; a call that asks for
 * memory inside a call that was given some can wait for itself, so ask for all at once.
 */
@FunctionalInterface
public interface Admission {

  /**
   * Asks for {@code bytes}. Any thread; does not wait itself. Cancelling the completion withdraws
   * the request.
   *
   * @return completes with what gives the bytes back when closed; fails if they can never be had
   */
  Completion<AutoCloseable> admit(long bytes);

  /**
   * A budget of so many bytes, for any number of engines, strictly in order: while the oldest
   * request does not fit, none behind it is granted, however small. So nothing starves, and some
   * bytes may lie idle for a while. A request for more than there is at all fails at once.
   *
   * @throws IllegalArgumentException if there is less than one byte
   */
  static Admission upTo(long bytes) {
    return new Budget(bytes);
  }
}
