package io.fairlead.device.spi;

/** Free and total device memory in bytes, as the driver sees it now. */
public record MemoryInfo(long freeBytes, long totalBytes) {}
