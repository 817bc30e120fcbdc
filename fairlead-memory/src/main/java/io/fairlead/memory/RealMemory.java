package io.fairlead.memory;

import io.fairlead.device.spi.MemoryInfo;

/**
 * A device's memory as its driver sees it, beside what Fairlead believes that its own buffers have.
 * {@link MemoryStats} is about the limit; this is about the device, which others use as well.
 *
 * <p>Not one picture: the driver is asked in several questions while others go on.
 *
 * @param totalBytes what the device has
 * @param freeBytes what nobody has
 * @param poolUnusedBytes what the driver's shared pool keeps of what was given back to it, by
 *     whomever; {@link Device#makeRoom} returns it to the device
 * @param oursBytes what this device's buffers have: with frees that it has not reached, and with
 *     what is kept for reuse
 * @param othersBytes all the rest: of libraries in this process, of other processes, of another
 *     {@link Device} on it, of code and contexts, and what the driver takes for itself
 */
public record RealMemory(
    long totalBytes, long freeBytes, long poolUnusedBytes, long oursBytes, long othersBytes) {

  static RealMemory of(MemoryInfo info, long ours) {
    long unused = info.poolUnusedBytes();
    long free = info.outsideBytes();
    long others = Math.max(0, info.totalBytes() - free - unused - ours);
    return new RealMemory(info.totalBytes(), free, unused, ours, others);
  }

  /** In words, for reports: {@code 139.8 GiB, free 3.0 GiB, ...}. */
  public String text() {
    return Sizes.text(totalBytes)
        + ", free "
        + Sizes.text(freeBytes)
        + ", kept by the driver's pool "
        + Sizes.text(poolUnusedBytes)
        + ", ours "
        + Sizes.text(oursBytes)
        + ", others "
        + Sizes.text(othersBytes);
  }
}
