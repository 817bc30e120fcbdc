package io.fairlead.memory;

import io.fairlead.device.spi.DeviceInfo;
import java.util.Collection;
import java.util.Comparator;
import java.util.List;

/** Says in words who holds a device's memory. */
final class MemoryReport {
  /** More would hide the message; the largest are what the reader can do something about. */
  private static final int HOLDERS_MAX = 8;

  private MemoryReport() {}

  static String text(
      long bytes,
      Site site,
      String why,
      DeviceInfo device,
      MemoryStats stats,
      String tiers,
      String real,
      Collection<Storage> live,
      String graph) {
    StringBuilder text = new StringBuilder(512);
    text.append("no room for ")
        .append(Sizes.text(bytes))
        .append(" on device ")
        .append(device.ordinal())
        .append(" (")
        .append(device.name())
        .append("), asked for at ")
        .append(site)
        .append(": ")
        .append(why)
        .append(".\n  limit ")
        .append(Sizes.text(stats.limit()))
        .append(", in use ")
        .append(Sizes.text(stats.inUse()))
        .append(" (of which being freed ")
        .append(Sizes.text(stats.pendingFree()))
        .append("), reserved ")
        .append(Sizes.text(stats.reserved()))
        .append(", peak ")
        .append(Sizes.text(stats.peak()))
        .append(", kept for reuse ")
        .append(Sizes.text(stats.cached()))
        .append("\n  ")
        .append(tiers)
        .append(real);
    appendHolders(text, live);
    return text.append(graph)
        .append(
            "\n  Close buffers and leases earlier, reserve before work begins, let work give way")
        .append(" with Oom.retry, or raise the limit.")
        .toString();
  }

  private static void appendHolders(StringBuilder text, Collection<Storage> live) {
    List<Storage> largest =
        live.stream()
            .filter(storage -> storage.charge != null)
            .sorted(Comparator.comparingLong((Storage storage) -> storage.bytes).reversed())
            .toList();
    for (Storage storage : largest.subList(0, Math.min(HOLDERS_MAX, largest.size()))) {
      text.append("\n  held: ").append(storage.describe()).append(storage.whyItStays());
    }
    if (largest.size() > HOLDERS_MAX) {
      text.append("\n  and ").append(largest.size() - HOLDERS_MAX).append(" smaller buffers");
    }
  }
}
