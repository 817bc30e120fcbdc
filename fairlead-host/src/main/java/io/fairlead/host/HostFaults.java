package io.fairlead.host;

import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverCall;

/**
 * For tests: makes calls and operations of a host driver fail on purpose. Any thread; never blocks.
 * What was armed for a kind of call before is replaced.
 */
public final class HostFaults {
  private final HostDriver driver;

  private HostFaults(HostDriver driver) {
    this.driver = driver;
  }

  /**
   * The faults of a driver that {@link HostDriverProvider} opened.
   *
   * @throws IllegalArgumentException if it is another kind of driver
   */
  public static HostFaults of(Driver driver) {
    if (driver instanceof HostDriver host) {
      return new HostFaults(host);
    }
    throw new IllegalArgumentException(
        "faults can be injected into a host driver, not into " + driver.name());
  }

  /**
   * Lets the nth call of this kind from now on (1: the next) be refused with {@code status}; the
   * context stays sound. Calls before and after it work.
   */
  public void failCall(DriverCall kind, long nth, int status) {
    driver.faults().failCall(kind, check(nth), status);
  }

  /**
   * Lets the nth operation of this kind that runs from now on (1: the next) fault asynchronously:
   * its context is lost with {@code status}.
   */
  public void failOperation(DriverCall kind, long nth, int status) {
    driver.faults().failOperation(kind, check(nth), status);
  }

  /** Disarms everything. */
  public void clear() {
    driver.faults(null);
  }

  private static long check(long nth) {
    if (nth < 1) {
      throw new IllegalArgumentException("count calls from 1, not " + nth);
    }
    return nth;
  }
}
