package io.fairlead.task;

/**
 * Work that lies in a thread's deque until somebody begins it: its own thread when it joins, or a
 * runner that takes it. Whoever wins one compare-and-set begins it, nobody else ever does.
 */
abstract sealed class ForkFrame permits Fork, JoinFrame {

  /**
   * Not 0 while it has not begun: a number that is another one when the frame was used again. Any
   * thread; never blocks.
   */
  abstract long waiting();

  /** Takes it for the calling runner, if it still waits under this number. */
  abstract boolean take(long number);

  /** Takes it for a runner that will be told; by the thread that forked it. */
  abstract boolean takeForRunner();

  /**
   * There is no thread to run it, which was taken for one: it ends with this failure. By who took
   * it.
   */
  abstract void failTaken(Throwable none);

  /** From begin to end, by the runner it was taken for. Throws nothing. */
  abstract void runTaken(Execution runner, Runners runners);
}
