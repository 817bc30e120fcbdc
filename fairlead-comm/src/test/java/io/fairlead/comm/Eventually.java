package io.fairlead.comm;

import java.time.Duration;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import java.util.function.LongSupplier;

/** Waits for a state that another thread brings about after it has given its signal. */
final class Eventually {
  private static final Duration BOUND = Duration.ofSeconds(30);
  private static final long PAUSE_NANOS = 100_000;

  private Eventually() {}

  static void holds(String what, BooleanSupplier condition) {
    if (!comesTrue(condition)) {
      throw new AssertionError("not within " + BOUND + ": " + what);
    }
  }

  /** Waits until it is this; what it was last stands in the failure. */
  static void is(long wanted, String what, LongSupplier value) {
    if (!comesTrue(() -> value.getAsLong() == wanted)) {
      throw new AssertionError(
          "not within "
              + BOUND
              + ": "
              + what
              + " is "
              + value.getAsLong()
              + " and should be "
              + wanted);
    }
  }

  private static boolean comesTrue(BooleanSupplier condition) {
    long end = System.nanoTime() + BOUND.toNanos();
    while (!condition.getAsBoolean()) {
      if (System.nanoTime() - end > 0) {
        return false;
      }
      LockSupport.parkNanos(PAUSE_NANOS);
    }
    return true;
  }
}
