package io.fairlead.device.spi;

/**
 * Device memory in bytes, as the driver sees it now, whoever has it.
 *
 * <p>Some drivers keep a pool that everybody in the process shares who allocates in stream order: a
 * BLAS, another framework, and Fairlead. What was given back to it stays there until it is {@link
 * Driver#trimPool trimmed}; others who do not allocate from it cannot have that.
 *
 * @param freeBytes what an allocation in stream order can have: what the device has free, and what
 *     the pool keeps without using it
 * @param totalBytes of the device
 * @param poolBytes what the shared pool has from the device, in use or not; 0 without such a pool
 * @param poolUsedBytes the part of that which somebody has allocated
 */
public record MemoryInfo(long freeBytes, long totalBytes, long poolBytes, long poolUsedBytes) {

  /** Of a driver that has no shared pool. */
  public MemoryInfo(long freeBytes, long totalBytes) {
    this(freeBytes, totalBytes, 0, 0);
  }

  /** What the shared pool keeps and nobody uses. */
  public long poolUnusedBytes() {
    return Math.max(0, poolBytes - poolUsedBytes);
  }

  /** What anybody can have, in whichever way he allocates: also one who does not use the pool. */
  public long outsideBytes() {
    return Math.max(0, freeBytes - poolUnusedBytes());
  }
}
