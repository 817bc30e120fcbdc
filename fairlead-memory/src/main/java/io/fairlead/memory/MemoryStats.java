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
 * @param cached bytes that nobody uses and that the pool keeps for later buffers, instead of giving
 *     them to the driver; they count as free
 * @param reused the part of {@code allocations} that the pool served without the driver
 */
public record MemoryStats(
    long limit,
    long inUse,
    long reserved,
    long peak,
    long allocations,
    long pendingFree,
    long cached,
    long reused) {

  MemoryStats with(Pool pool) {
    return new MemoryStats(
        limit, inUse, reserved, peak, allocations, pendingFree, pool.cached(), pool.reused());
  }
}
