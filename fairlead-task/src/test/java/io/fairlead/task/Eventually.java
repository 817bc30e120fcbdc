package io.fairlead.task;

import java.time.Duration;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;

/** Waits for a condition that another thread brings about, within a bound. */
final class Eventually {
  private static final Duration BOUND = Duration.ofSeconds(60);

  private Eventually() {}

  static void holds(String what, BooleanSupplier condition) {
    if (!holdsWithin(BOUND, condition)) {
      throw new AssertionError("not within " + BOUND + ": " + what);
    }
  }

  /** Whether it comes to hold within the given time. */
  static boolean holdsWithin(Duration bound, BooleanSupplier condition) {
    long end = System.nanoTime() + bound.toNanos();
    boolean interrupted = false;
    try {
      while (!condition.getAsBoolean()) {
        if (System.nanoTime() - end > 0) {
          return false;
        }
        // else parking would return at once, and a virtual thread never leave its carrier
        interrupted |= Thread.interrupted();
        LockSupport.parkNanos(100_000);
      }
      return true;
    } finally {
      if (interrupted) {
        Thread.currentThread().interrupt();
      }
    }
  }

  /** Parks the caller until another thread has run: a task gives up its thread here. */
  static void suspend() {
    Completion.Source<Boolean> source = Completion.source();
    Thread.ofVirtual().start(() -> source.complete(true));
    source.completion().await();
  }

  static void waits(Thread thread) {
    holds(
        thread + " waits",
        () ->
            thread.getState() == Thread.State.WAITING
                || thread.getState() == Thread.State.TIMED_WAITING);
  }
}
