package io.fairlead.memory;

/**
 * A device's memory at one moment.
 *
 * @param limit most bytes that may be in use; and together with what is reserved, except while
 *     something of that is lent to buffers that came back from below
 * @param inUse bytes of live buffers and of frees that the device has not reached yet
 * @param reserved bytes promised to open reservations and not used by their buffers
 * @param peak the largest {@code inUse} since the device was opened
 * @param allocations number of allocations since the device was opened
 * @param pendingFree the part of {@code inUse} that is closed and waits for the device
 * @param cached bytes that nobody uses and that the pool keeps for later buffers, instead of giving
 *     them to the driver; they count as free
 * @param reused the part of {@code allocations} that the pool served without the driver
 * @param onHost bytes of copies in pinned host memory, of buffers that left the device and of some
 *     that came back
 * @param onDisk bytes that files of such copies take
 * @param spills how many times a buffer left the device
 * @param returns how many times one came back
 * @param moved the bytes of all that
 * @param waits who lacked memory, and what became of them
 */
public record MemoryStats(
    long limit,
    long inUse,
    long reserved,
    long peak,
    long allocations,
    long pendingFree,
    long cached,
    long reused,
    long onHost,
    long onDisk,
    long spills,
    long returns,
    Moved moved,
    Waits waits) {

  /**
   * Tasks that lacked memory.
   *
   * @param now how many requests wait just now
   * @param rollbacks how many tries of {@link Oom} have given way since the device was opened
   * @param splits how many were too large even alone
   * @param failures how many tasks failed since nobody could give way
   * @param needless how many of the rollbacks and splits asked for no more than what was free, was
   *     being freed, or could have been spilled, as a second look found that knows nothing of who
   *     waits for whom. 0, or the first look is wrong; but a task that is cancelled or runs into
   *     its deadline just then may give something back between the two
   */
  public record Waits(int now, long rollbacks, long splits, long failures, long needless) {
    /** Of a device that always had enough. */
    public static final Waits NONE = new Waits(0, 0, 0, 0, 0);
  }

  /**
   * Bytes that moved between tiers since the device was opened.
   *
   * @param spilled of buffers that left the device
   * @param returned of those that came back
   * @param toDisk written to files
   * @param fromDisk read from files
   */
  public record Moved(long spilled, long returned, long toDisk, long fromDisk) {
    /** Of a device that never spilled. */
    public static final Moved NONE = new Moved(0, 0, 0, 0);
  }

  /** Of a budget, which knows no more. */
  MemoryStats(
      long limit, long inUse, long reserved, long peak, long allocations, long pendingFree) {
    this(
        limit,
        inUse,
        reserved,
        peak,
        allocations,
        pendingFree,
        0,
        0,
        0,
        0,
        0,
        0,
        Moved.NONE,
        Waits.NONE);
  }

  MemoryStats with(Pool pool) {
    return new MemoryStats(
        limit,
        inUse,
        reserved,
        peak,
        allocations,
        pendingFree,
        pool.cached(),
        pool.reused(),
        onHost,
        onDisk,
        spills,
        returns,
        moved,
        waits);
  }

  MemoryStats with(Waits known) {
    return new MemoryStats(
        limit,
        inUse,
        reserved,
        peak,
        allocations,
        pendingFree,
        cached,
        reused,
        onHost,
        onDisk,
        spills,
        returns,
        moved,
        known);
  }

  MemoryStats with(long hostBytes, long diskBytes, long spilled, long returned, Moved bytes) {
    return new MemoryStats(
        limit,
        inUse,
        reserved,
        peak,
        allocations,
        pendingFree,
        cached,
        reused,
        hostBytes,
        diskBytes,
        spilled,
        returned,
        bytes,
        waits);
  }
}
