package io.fairlead.runtime;

import io.fairlead.device.ByteSize;
import io.fairlead.device.DeviceStats;
import io.fairlead.memory.Device;
import io.fairlead.memory.MemoryStats;
import java.util.List;
import java.util.Locale;

/** Says in words what a runtime has done. */
final class RuntimeReport {
  private static final double NANOS_PER_MILLI = 1e6;

  private RuntimeReport() {}

  static String text(
      FairleadConfig config, DriverChoice choice, List<Device> devices, RankTraffic traffic) {
    StringBuilder text = new StringBuilder(512);
    text.append(
        "driver %s %s (%s), waits are %s%n"
            .formatted(
                choice.driver().name(),
                choice.driver().version(),
                choice.reason(),
                config.waitMode().name().toLowerCase(Locale.ROOT)));
    for (Device device : devices) {
      text.append(memory(device)).append(work(device));
    }
    return text.append(messages(traffic)).toString();
  }

  private static String memory(Device device) {
    MemoryStats memory = device.memory();
    return "device %d (%s): memory peak %s of %s in %d allocations (%d without the driver), now %s in use, %s reserved and %s kept for reuse%n"
        .formatted(
            device.info().ordinal(),
            device.info().name(),
            ByteSize.text(memory.peak()),
            ByteSize.text(memory.limit()),
            memory.allocations(),
            memory.reused(),
            ByteSize.text(memory.inUse()),
            ByteSize.text(memory.reserved()),
            ByteSize.text(memory.cached()));
  }

  private static String work(Device device) {
    DeviceStats stats = device.context().stats();
    String kernels =
        stats.kernelNanos() < 0 ? "" : " running %s".formatted(millis(stats.kernelNanos()));
    return "  %d streams, %d launches%s, %d copies (%s up, %s down), %d waits of together %s%n"
        .formatted(
            stats.streams(),
            stats.launches(),
            kernels,
            stats.copies(),
            ByteSize.text(stats.bytesUp()),
            ByteSize.text(stats.bytesDown()),
            stats.waits(),
            millis(stats.waitNanos()));
  }

  private static String messages(RankTraffic traffic) {
    return traffic.ranks() == 0
        ? "messages: no ranks have run%n".formatted()
        : "messages of %d ranks: %d sent (%s), %d collectives, waits of together %s%n"
            .formatted(
                traffic.ranks(),
                traffic.sent(),
                ByteSize.text(traffic.bytes()),
                traffic.collectives(),
                millis(traffic.waitNanos()));
  }

  private static String millis(long nanos) {
    return String.format(Locale.ROOT, "%.1f ms", nanos / NANOS_PER_MILLI);
  }
}
