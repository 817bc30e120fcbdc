package io.fairlead.memory;

import java.util.Objects;

/**
 * What stands around a device's memory pool.
 *
 * @param failures which allocations fail on purpose
 * @param log what is written to the log
 */
public record PoolWrapping(MemoryFailures failures, PoolLog log) {
  /** Nothing. */
  public static final PoolWrapping NONE = new PoolWrapping(MemoryFailures.NONE, PoolLog.OFF);

  public PoolWrapping {
    Objects.requireNonNull(failures, "failures");
    Objects.requireNonNull(log, "log");
  }

  /** Puts around it what is asked for; what fails on purpose is logged, too. */
  Pool around(Pool pool, String device, int ordinal) {
    Pool failing = failures.isAny() ? new FailingPool(pool, failures, ordinal) : pool;
    return log == PoolLog.OFF ? failing : new LoggedPool(failing, device, log == PoolLog.ALL);
  }
}
