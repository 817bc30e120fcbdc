package io.fairlead.task;

import java.time.Duration;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;

/** Waits for a condition that another thread brings about, within a bound. */
final class Eventually {
  private static final Duration BOUND = Duration.ofSeconds(60);

  private Eventually() {}

  static void holds(String what, BooleanSupplier condition) {
    long end = System.nanoTime() + BOUND.toNanos();
    while (!condition.getAsBoolean()) {
      if (System.nanoTime() - end > 0) {
        throw new AssertionError("not within " + BOUND + ": " + what);
      }
      LockSupport.parkNanos(100_000);
    }
  }

  /** Whether it comes to hold within the given time; for conditions that should never. */
  static boolean holdsWithin(Duration bound, BooleanSupplier condition) {
    long end = System.nanoTime() + bound.toNanos();
    while (!condition.getAsBoolean()) {
      if (System.nanoTime() - end > 0) {
        return false;
      }
      LockSupport.parkNanos(100_000);
    }
    return true;
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
