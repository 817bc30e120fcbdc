package io.fairlead.device;

/**
 * What a context has done so far; a snapshot whose fields may be a few operations apart.
 *
 * @param operations operations enqueued, edges left out
 * @param launches kernels among them
 * @param copies copies and fills among them that went through {@link DeviceStream}'s copy methods
 * @param bytesUp bytes copied to the device
 * @param bytesDown bytes copied from the device
 * @param edges edges made between streams
 * @param edgesElided edges that were not needed
 * @param events event records, all for edges
 * @param signals signals enqueued for waiters and for the limit of unfinished operations
 * @param waits waits for work that had not ended yet
 * @param waitNanos time from asking until the work had ended, summed over {@code waits}
 * @param kernelNanos time that kernels ran, or -1 where the driver does not measure it
 * @param streams streams alive now
 * @param streamsCreated streams made so far
 * @param hostBytes page-locked bytes held by the block pool now
 * @param leaks streams, modules and blocks that the collector found unclosed
 */
public record DeviceStats(
    long operations,
    long launches,
    long copies,
    long bytesUp,
    long bytesDown,
    long edges,
    long edgesElided,
    long events,
    long signals,
    long waits,
    long waitNanos,
    long kernelNanos,
    int streams,
    long streamsCreated,
    long hostBytes,
    long leaks) {}
