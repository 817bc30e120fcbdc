package io.fairlead.cli.join;

/**
 * How the join cuts its tables for a device with so much memory, so many tasks at once.
 *
 * <pre>
 * a chunk      what is loaded, and later scattered to partitions, as one buffer
 * a partition  the rows of both tables whose keys' hashes begin alike, as pieces
 * a piece      rows of one partition, as one buffer; many chunks are scattered to it
 * a table      the left rows of one partition by their keys; the right rows look there
 * </pre>
 *
 * <p>What all tasks work on at once should fit: a chunk and its sorted copy for each task takes a
 * quarter of the memory together, a piece of each partition another, and a table for each task
 * half. Nothing that is right depends on it: what does not fit is spilled and brought back. What
 * must fit is what one launch uses.
 *
 * <p><b>How many tasks at once.</b> Each one more makes chunks smaller and partitions more, so what
 * a copy from a chunk to a partition moves shrinks with the square of them; and none of the sizes
 * may go below what is worth an operation, so many tasks in little memory work on more than fits,
 * and each brings back what the others have just sent below. So there are as many as were asked
 * for, and fewer where copies would be tiny (but two), or what is worked on would not fit.
 *
 * @param partitionBits there are {@code 2^partitionBits} partitions
 * @param chunkBytes of a chunk, at the most; at least a row is taken
 * @param pieceBytes of a piece, likewise
 * @param tasks that work at once
 */
record JoinPlan(int partitionBits, long chunkBytes, long pieceBytes, int tasks) {
  /** Larger ones gain no speed, and are less even to share. */
  private static final long CHUNK_BYTES_MAX = 64L << 20;

  /** Smaller ones cost more calls than copying. */
  private static final long CHUNK_BYTES_MIN = 64L << 10;

  private static final long PIECE_BYTES_MIN = 16L << 10;
  private static final long PIECE_BYTES_MAX = 16L << 20;

  /** More tasks than that take turns with the device anyhow. */
  private static final int TASKS_AT_ONCE_MAX = 16;

  /** What a copy from a chunk to a partition moves should cost more than to ask for it. */
  static final long COPY_BYTES_MIN_OF_HOST = 4L << 10;

  /** A GPU copies a hundred times as fast, and is asked no faster. */
  static final long COPY_BYTES_MIN_OF_GPU = 64L << 10;

  /** A table has three entries for two rows, so that probes stay short. */
  private static final long TABLE_ROWS = 2;

  private static final long TABLE_ENTRIES = 3;

  /** So that tables of no or one row are no special case. */
  private static final long CAPACITY_MIN = 16;

  /**
   * A plan for these tables.
   *
   * @param deviceBytes the memory there is
   * @param bits the partitions that were asked for; negative for as many as are good
   * @param copyBytesMin what a copy from a chunk to a partition should move at least
   */
  static JoinPlan of(
      Table left, Table right, long deviceBytes, int tasks, int bits, long copyBytesMin) {
    int most = Math.clamp(tasks, 1, TASKS_AT_ONCE_MAX);
    JoinPlan all = cut(left, right, deviceBytes, most, bits).withTasks(tasks);
    if (all.isWorthWhile(left, right, deviceBytes, copyBytesMin)) {
      return all;
    }
    for (int atOnce = most; atOnce > 1; atOnce--) {
      JoinPlan plan = cut(left, right, deviceBytes, atOnce, bits);
      if (plan.isWorthWhile(left, right, deviceBytes, copyBytesMin)) {
        return plan;
      }
    }
    return cut(left, right, deviceBytes, 1, bits);
  }

  private static JoinPlan cut(Table left, Table right, long deviceBytes, int atOnce, int bits) {
    long shared = (left.bytes() + right.bytes()) / (4L * atOnce); // else some have nothing to do
    long chunk =
        Math.clamp(Math.min(deviceBytes / (8L * atOnce), shared), CHUNK_BYTES_MIN, CHUNK_BYTES_MAX);
    int partitionBits = bits < 0 ? bits(left, right, deviceBytes, atOnce) : bits;
    long piece = Math.clamp((deviceBytes / 4) >> partitionBits, PIECE_BYTES_MIN, PIECE_BYTES_MAX);
    return new JoinPlan(partitionBits, chunk, piece, atOnce);
  }

  /** Whether so many tasks have room for what they work on at once, and copies of some size. */
  private boolean isWorthWhile(Table left, Table right, long deviceBytes, long copyBytesMin) {
    long room = deviceBytes / 4 * 3;
    boolean fits = scatteredBytes() <= room && joinedBytes(left, right) <= room;
    // two in any case: one goes on while the other waits for what it needs to come back
    boolean copiesAreLarge = tasks <= 2 || chunkBytes >> partitionBits >= copyBytesMin;
    return (fits && copiesAreLarge) || inCoreBytes(left, right) <= deviceBytes;
  }

  /** What all tasks together use while they scatter chunks to the pieces of one table. */
  private long scatteredBytes() {
    return 2L * tasks * chunkBytes + partitions() * pieceBytes;
  }

  /** What they use while each joins a partition. */
  private long joinedBytes(Table left, Table right) {
    return tasks * ((tablesBytes(left, right) >> partitionBits) + pieceBytes);
  }

  /** Of the tables of all partitions together. */
  private static long tablesBytes(Table left, Table right) {
    return tableBytes(capacity(left.rows()), Groups.stride(left, right));
  }

  /** The same with chunks that can leave the device by way of so much host memory; 0: any can. */
  JoinPlan leavingBy(long hostBytes) {
    long most = hostBytes <= 0 ? chunkBytes : Long.highestOneBit(Math.max(1, hostBytes / 2));
    return new JoinPlan(partitionBits, Math.min(chunkBytes, most), pieceBytes, tasks);
  }

  /** The same for more or fewer of them. */
  JoinPlan withTasks(int all) {
    return new JoinPlan(partitionBits, chunkBytes, pieceBytes, all);
  }

  /**
   * As many as give each task a table that fits beside the others', and something to do until the
   * end; but not more than their pieces have room for, unless one table would not fit at all.
   */
  private static int bits(Table left, Table right, long deviceBytes, int atOnce) {
    long tables = tablesBytes(left, right);
    int beside = log2(Math.ceilDiv(tables, Math.max(1, deviceBytes / 2 / atOnce)));
    int even = log2(atOnce) + 1;
    int room = log2(Math.max(1, deviceBytes / 2 / PIECE_BYTES_MIN));
    int alone = log2(Math.ceilDiv(tables, Math.max(1, deviceBytes / 4)));
    int useful = log2(Math.ceilDiv(left.bytes() + right.bytes(), PIECE_BYTES_MIN));
    int wanted = Math.max(Math.min(Math.max(beside, even), room), alone);
    return Math.clamp(wanted, 0, Math.min(useful, JoinKernels.PARTITION_BITS_MAX));
  }

  /** Rounded up; 0 of nothing. */
  private static int log2(long n) {
    return n <= 1 ? 0 : Long.SIZE - Long.numberOfLeadingZeros(n - 1);
  }

  int partitions() {
    return 1 << partitionBits;
  }

  int chunkRows(Table table) {
    return rows(chunkBytes, table);
  }

  int pieceRows(Table table) {
    return rows(pieceBytes, table);
  }

  private static int rows(long bytes, Table table) {
    return (int) Math.clamp(bytes / table.rowBytes(), 1, Math.max(1, table.rows()));
  }

  /** Entries of a table that has room for so many different keys. */
  static long capacity(long keys) {
    return CAPACITY_MIN + Math.ceilDiv(keys * TABLE_ENTRIES, TABLE_ROWS);
  }

  /** Bytes of such a table; see {@link JoinKernels} for the one entry more. */
  static long tableBytes(long capacity, int stride) {
    return (capacity + 1) * stride * Long.BYTES;
  }

  /** About what a run takes that never spills. */
  long inCoreBytes(Table left, Table right) {
    long tables = tablesBytes(left, right);
    long ofTasks = 2L * Math.min(tasks, partitions()) * (tables >> partitionBits);
    long chunks = 2L * tasks * chunkBytes;
    long pieces = 2L * partitions() * pieceBytes;
    return left.bytes() + right.bytes() + Math.max(ofTasks, chunks + pieces);
  }
}
