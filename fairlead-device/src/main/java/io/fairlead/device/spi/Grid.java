package io.fairlead.device.spi;

/**
 * The index space of a launch: {@code items} work items, {@code block} of them per block on a GPU,
 * and at least {@code grain} of them in a row per worker on the host device. On a GPU that is
 * ceil(items / block) blocks along x, and a kernel may be told the number of items: see {@link
 * ModuleImage}.
 *
 * @param items number of work items, 0 or more
 * @param block threads per block on a GPU, 1 to 1024
 * @param grain the smallest piece that is worth handing to another worker
 */
public record Grid(long items, int block, int grain) {
  /** Threads per block if nothing is said: four warps hide latency on every GPU since 2012. */
  public static final int DEFAULT_BLOCK = 128;

  /** Items per piece if nothing is said: about a microsecond of simple arithmetic. */
  public static final int DEFAULT_GRAIN = 2048;

  public Grid {
    if (items < 0 || block < 1 || block > 1024 || grain < 1) {
      throw new IllegalArgumentException(
          "grid needs items >= 0, 1 <= block <= 1024 and grain >= 1, not items="
              + items
              + ", block="
              + block
              + ", grain="
              + grain);
    }
  }

  public static Grid of(long items) {
    return new Grid(items, DEFAULT_BLOCK, DEFAULT_GRAIN);
  }

  public Grid withBlock(int threads) {
    return new Grid(items, threads, grain);
  }

  public Grid withGrain(int smallestPiece) {
    return new Grid(items, block, smallestPiece);
  }
}
