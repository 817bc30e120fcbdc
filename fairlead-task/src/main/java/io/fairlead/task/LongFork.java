package io.fairlead.task;

/** A function that forks: from a number to a number, without an object for a call. */
@FunctionalInterface
public interface LongFork {

  /**
   * Runs once for each fork, in place or on another thread.
   *
   * @param forks the running thread's: fork and join with this one, never with one from outside
   */
  long run(Forks forks, long argument);
}
