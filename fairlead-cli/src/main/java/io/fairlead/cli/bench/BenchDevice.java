package io.fairlead.cli.bench;

import io.fairlead.memory.Device;
import io.fairlead.runtime.DriverReport;
import io.fairlead.runtime.Fairlead;
import io.fairlead.runtime.FairleadConfig;
import java.util.List;
import java.util.function.UnaryOperator;

/**
 * The device that is measured, and how it is opened: as the settings of this process say, except
 * for which driver it is. Immutable.
 */
final class BenchDevice {
  /** What a user may choose. */
  static final List<String> NAMES = List.of("host", "cuda", FairleadConfig.AUTO);

  /** The embedded device has what it is given; a GPU all that it has. */
  private static final long HOST_BYTES = 1L << 30;

  private static final long HOST_BYTES_QUICK = 128L << 20;

  private final String wanted;
  private final boolean quick;

  private BenchDevice(String wanted, boolean quick) {
    this.wanted = wanted;
    this.quick = quick;
  }

  /** Looks for no driver yet. */
  static BenchDevice of(Suite.Options options) {
    return new BenchDevice(options.device(), options.quick());
  }

  /** host or cuda. Looks for a driver where either will do. */
  String driver() {
    return wanted.equals(FairleadConfig.AUTO) ? (hasCuda() ? "cuda" : "host") : wanted;
  }

  private static boolean hasCuda() {
    return Fairlead.drivers().stream()
        .filter(report -> report.name().equals("cuda"))
        .anyMatch(DriverReport::available);
  }

  boolean isCuda() {
    return driver().equals("cuda");
  }

  /** Divides the numbers of rounds. */
  int scale() {
    return quick ? 10 : 1;
  }

  boolean quick() {
    return quick;
  }

  /**
   * Opens it.
   *
   * @param change of how it is opened
   * @throws io.fairlead.runtime.DriverUnavailableException if it is not there, with the reason
   */
  Fairlead open(UnaryOperator<FairleadConfig> change) {
    FairleadConfig config = FairleadConfig.fromSystem().withDevice(driver());
    if (config.device().equals("host") && config.deviceMemory() == 0) {
      config = config.withDeviceMemory(quick ? HOST_BYTES_QUICK : HOST_BYTES);
    }
    return Fairlead.open(change.apply(config));
  }

  Fairlead open() {
    return open(UnaryOperator.identity());
  }

  /** Says what it is, in a few words. */
  static String describe(Device device) {
    return device.info().name() + ", limit " + (device.memory().limit() >> 20) + " MiB";
  }
}
