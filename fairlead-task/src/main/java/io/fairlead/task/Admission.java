package io.fairlead.task;

/** Decides when a call may use this much memory. */
@FunctionalInterface
public interface Admission {

  /**
   * Asks for {@code bytes}. Any thread; does not wait itself. Cancelling the completion withdraws
   * the request.
   *
   * @return completes with what gives the bytes back when closed
   */
  Completion<AutoCloseable> admit(long bytes);
}
