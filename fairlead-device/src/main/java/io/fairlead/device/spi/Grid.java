package io.fairlead.device.spi;

/**
 * The index space of a launch: {@code items} work items, {@code block} of them per block on a GPU,
 * and at least {@code grain} of them in a row per worker on the host device. On a GPU that is
 * ceil(items / block) blocks along x, and a kernel may be told the number of items: see {@link
 * ModuleImage}.
 *
 * <p>What only a GPU can do (see {@link DeviceFeatures}) is refused by a device that cannot: {@link
 * #cooperative}, {@link #withCluster}. Blocks are rounded up to whole clusters, so a last cluster
 * may have blocks without an item.
 *
 * @param items number of work items, 0 or more
 * @param block threads per block on a GPU, 1 to 1024
 * @param grain the smallest piece that is worth handing to another worker
 * @param cluster blocks along x that run together and can share memory, 1 to 8; 1: no clusters
 * @param isCooperative whether all threads run at the same time, so that they can wait for each
 *     other
 * @param sharedBytes dynamic shared memory of each block on a GPU; a kernel in Java has none and
 *     needs none
 */
public record Grid(
    long items, int block, int grain, int cluster, boolean isCooperative, int sharedBytes) {
  /** Threads per block if nothing is said: four warps hide latency on every GPU since 2012. */
  public static final int DEFAULT_BLOCK = 128;

  /** Items per piece if nothing is said: about a microsecond of simple arithmetic. */
  public static final int DEFAULT_GRAIN = 2048;

  /** The largest cluster that every device with clusters takes. */
  public static final int CLUSTER_MAX = 8;

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
    if (cluster < 1 || cluster > CLUSTER_MAX) {
      throw new IllegalArgumentException(
          "a cluster has 1 to " + CLUSTER_MAX + " blocks, not " + cluster);
    }
    if (sharedBytes < 0) {
      throw new IllegalArgumentException(
          "a block has 0 or more bytes of shared memory, not " + sharedBytes);
    }
  }

  /** A grid without clusters, whose threads do not wait for each other. */
  public Grid(long items, int block, int grain) {
    this(items, block, grain, 1, false, 0);
  }

  public static Grid of(long items) {
    return new Grid(items, DEFAULT_BLOCK, DEFAULT_GRAIN);
  }

  public Grid withBlock(int threads) {
    return new Grid(items, threads, grain, cluster, isCooperative, sharedBytes);
  }

  public Grid withGrain(int smallestPiece) {
    return new Grid(items, block, smallestPiece, cluster, isCooperative, sharedBytes);
  }

  /**
   * So many blocks in a row run on neighbouring processors at the same time, as a kernel sees by
   * {@code cluster.sync()} and distributed shared memory.
   */
  public Grid withCluster(int blocks) {
    return new Grid(items, block, grain, blocks, isCooperative, sharedBytes);
  }

  /**
   * All blocks run at the same time, so that {@code grid.sync()} works in the kernel. There may be
   * no more of them than the device holds at once, which {@link Driver#residentBlocks} answers; a
   * kernel with more items than that many threads loops over them.
   */
  public Grid cooperative() {
    return new Grid(items, block, grain, cluster, true, sharedBytes);
  }

  /** Each block gets so many bytes of {@code extern __shared__} memory. */
  public Grid withSharedBytes(int bytes) {
    return new Grid(items, block, grain, cluster, isCooperative, bytes);
  }

  /** Blocks along x on a GPU. */
  public long blocks() {
    long perCluster = (long) block * cluster;
    return Math.min(Math.ceilDiv(items, perCluster), Long.MAX_VALUE / cluster) * cluster;
  }
}
