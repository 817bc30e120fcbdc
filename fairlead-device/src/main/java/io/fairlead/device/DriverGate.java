package io.fairlead.device;

import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverCall;
import io.fairlead.fault.Mutant;
import io.fairlead.task.Binding;

/**
 * Makes the context current around the driver calls that need it, and restores what was current.
 *
 * <p>What is current belongs to the OS thread, and a virtual thread may change that at any point
 * where it can suspend. So between {@link #enter} and {@link #leave} nothing may suspend: no lock,
 * no queue, no parking; only driver calls that return promptly. Locks are taken before {@code
 * enter}. Nothing about the thread is kept across calls (law 1): what was current lives in the
 * caller's frame only.
 *
 * <p>Immutable. Any thread.
 */
final class DriverGate implements Binding {
  /** What {@link #enter} answers for a call that needs no context: there is nothing to restore. */
  private static final long UNBOUND = Long.MIN_VALUE;

  private final Driver driver;
  private final long context;
  private final CallTable needsCurrent;

  DriverGate(Driver driver, long context) {
    this.driver = driver;
    this.context = context;
    this.needsCurrent = new CallTable(driver::needsCurrent);
  }

  boolean needsCurrent(DriverCall call) {
    return needsCurrent.has(call);
  }

  /** Binds if the call needs it. Pass the answer to {@link #leave} in a finally block. */
  long enter(DriverCall call) {
    return needsCurrent.has(call) ? bind() : UNBOUND;
  }

  void leave(long previous) {
    if (previous != UNBOUND) {
      restore(previous);
    }
  }

  @Override
  public long bind() {
    if (Mutant.on("device.guard.skip")) {
      return UNBOUND;
    }
    return driver.bind(context);
  }

  @Override
  public void restore(long previous) {
    if (previous != UNBOUND) {
      driver.restore(context, previous);
    }
  }
}
