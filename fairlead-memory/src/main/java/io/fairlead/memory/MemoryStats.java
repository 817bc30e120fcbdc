package io.fairlead.memory;

/**
 * A device's memory at one moment.
 *
 * @param limit most bytes that may be in use and reserved together
 * @param inUse bytes of live buffers and of frees that the device has not reached yet
 * @param reserved bytes promised to open reservations and not used by their buffers
 * @param peak the largest {@code inUse} since the device was opened
 * @param allocations number of allocations since the device was opened
 * @param pendingFree the part of {@code inUse} that is closed and waits for the device
 */
public record MemoryStats(
    long limit, long inUse, long reserved, long peak, long allocations, long pendingFree) {}
