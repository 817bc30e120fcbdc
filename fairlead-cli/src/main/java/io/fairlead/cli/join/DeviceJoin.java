package io.fairlead.cli.join;

import io.fairlead.cli.Progress;
import io.fairlead.memory.Device;
import io.fairlead.memory.DeviceBuffer;
import io.fairlead.memory.MemoryStats;
import io.fairlead.memory.SpillConfig;
import io.fairlead.runtime.Fairlead;
import io.fairlead.task.ScopeOptions;
import io.fairlead.task.TaskScope;
import java.lang.foreign.MemorySegment;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.LongAccumulator;
import java.util.function.Consumer;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/**
 * The join on a device, in three phases, each by all tasks:
 *
 * <ol>
 *   <li><b>load</b>: both tables go to the device in chunks, and the rows of each chunk are counted
 *       by partition;
 *   <li><b>partition</b>: each chunk is sorted by partition, and appended to the pieces of each;
 *   <li><b>join</b>: for each partition, the left rows build a hash table of their keys, which sums
 *       as it goes; the right rows look their keys up there, and are summed beside them; entries
 *       with rows of both are the groups.
 * </ol>
 *
 * <p>A joined row is a pair of rows, but pairs are never made: a key with n left and m right rows
 * has n·m of them, and each left value counts m times. So a skewed key costs no more than others.
 *
 * <p>Tables, pieces and hash tables are buffers that are allocated and used as if all of them were
 * on the device; what does not fit there is the memory layer's to spill and to bring back. The
 * first failure of a task ends the others, and closes all buffers.
 *
 * <p>Threads: one runs it, once; it blocks until the last phase is done.
 */
final class DeviceJoin {
  /** Rows that a task makes and uploads at a time: a megabyte or so, however large the chunk. */
  private static final int LOAD_ROWS = 1 << 16;

  /** Probes of a row before a table that could be larger counts as too full. */
  private static final long PROBES_MAX = 256;

  private final Fairlead fairlead;
  private final Device device;
  private final JoinPlan plan;
  private final Table left;
  private final Table right;
  private final int stride;
  private final Progress progress;
  private final AtomicInteger rebuilt = new AtomicInteger();

  /** The most that was below the device, as seen whenever a step had ended. */
  private final LongAccumulator onHost = new LongAccumulator(Math::max, 0);

  private final LongAccumulator onDisk = new LongAccumulator(Math::max, 0);

  DeviceJoin(Fairlead fairlead, JoinPlan plan, Table left, Table right, Progress progress) {
    this.fairlead = fairlead;
    this.device = fairlead.device();
    this.plan = plan;
    this.left = left;
    this.right = right;
    this.stride = Groups.stride(left, right);
    this.progress = progress;
  }

  /**
   * How it went.
   *
   * @param load how long each phase took, in seconds
   * @param rebuilt how many hash tables were made anew, larger
   * @param onHostMax most bytes of copies in host memory that were seen
   * @param onDiskMax as {@code onHostMax}, on disk
   * @param kernels in which form they were loaded
   */
  record Run(
      double load,
      double partition,
      double join,
      int rebuilt,
      long onHostMax,
      long onDiskMax,
      String kernels) {
    double total() {
      return load + partition + join;
    }
  }

  /**
   * Runs it.
   *
   * @param sink gets the groups, those of a partition at a time, on any task, also at once
   * @throws DeviceTooSmallException if one launch needs more memory than there is
   */
  Run run(Consumer<long[]> sink) {
    try (JoinKernels kernels = JoinKernels.load(device);
        Side leftSide = new Side(device, left, plan);
        Side rightSide = new Side(device, right, plan)) {
      List<Side> sides = List.of(leftSide, rightSide);
      requireRoomForChunks(sides);
      long start = System.nanoTime();
      load(kernels, sides);
      sides.forEach(Side::layOut);
      requireRoomForTables(leftSide, rightSide);
      long loaded = System.nanoTime();
      partition(kernels, sides);
      long partitioned = System.nanoTime();
      join(kernels, leftSide, rightSide, sink);
      long joined = System.nanoTime();
      return new Run(
          (loaded - start) * 1e-9,
          (partitioned - loaded) * 1e-9,
          (joined - partitioned) * 1e-9,
          rebuilt.get(),
          onHost.get(),
          onDisk.get(),
          kernels.form());
    }
  }

  // --- load ---------------------------------------------------------------------------------

  private void load(JoinKernels kernels, List<Side> sides) {
    eachChunk("load", sides, (side, chunk) -> load(kernels, side, chunk));
  }

  private void load(JoinKernels kernels, Side side, int chunk) {
    int rows = side.rows(chunk);
    int words = side.table.words();
    DeviceBuffer buffer = device.allocate(rows * side.table.rowBytes());
    side.loaded(chunk, buffer);
    upload(side, chunk, buffer);
    try (DeviceBuffer counts = zeros(plan.partitions())) {
      kernels.count.launch(kernels.tiles(rows), buffer, rows, words, plan.partitionBits(), counts);
      side.counted(chunk, counts.toLongs());
    }
  }

  private static void upload(Side side, int chunk, DeviceBuffer target) {
    int rows = side.rows(chunk);
    int words = side.table.words();
    long[] batch = new long[Math.min(rows, LOAD_ROWS) * words];
    for (int first = 0; first < rows; first += LOAD_ROWS) {
      int count = Math.min(LOAD_ROWS, rows - first);
      side.table.read(side.firstRow(chunk) + first, count, batch);
      MemorySegment made = MemorySegment.ofArray(batch).asSlice(0, count * side.table.rowBytes());
      target.upload(first * side.table.rowBytes(), made);
    }
  }

  private DeviceBuffer zeros(int longs) {
    DeviceBuffer buffer = device.allocate((long) longs * Long.BYTES);
    buffer.fill((byte) 0);
    return buffer;
  }

  // --- partition ----------------------------------------------------------------------------

  /** What was loaded last comes first: that is on the device still, and need not come back. */
  private void partition(JoinKernels kernels, List<Side> sides) {
    eachChunk(
        "partition",
        sides.reversed(),
        (side, chunk) -> partition(kernels, side, side.chunks() - 1 - chunk));
  }

  private void partition(JoinKernels kernels, Side side, int chunk) {
    long[] counts = side.counts(chunk);
    long[] starts = new long[counts.length];
    for (int p = 1; p < counts.length; p++) {
      starts[p] = starts[p - 1] + counts[p - 1];
    }
    try (DeviceBuffer sorted = sorted(kernels, side, chunk, starts)) {
      for (int p = 0; p < counts.length; p++) {
        side.append(chunk, p, sorted, starts[p]);
      }
    }
  }

  private DeviceBuffer sorted(JoinKernels kernels, Side side, int chunk, long[] starts) {
    int rows = side.rows(chunk);
    DeviceBuffer sorted = device.allocate(rows * side.table.rowBytes());
    try (DeviceBuffer unsorted = side.take(chunk);
        DeviceBuffer next = device.allocate((long) starts.length * Long.BYTES)) {
      next.upload(starts);
      kernels.scatter.launch(
          kernels.tiles(rows),
          unsorted,
          rows,
          side.table.words(),
          plan.partitionBits(),
          next,
          sorted);
      return sorted;
    } catch (RuntimeException | Error failure) {
      sorted.close();
      throw failure;
    }
  }

  // --- join ---------------------------------------------------------------------------------

  /** The largest partitions first, so that no task is left alone with one at the end. */
  private void join(JoinKernels kernels, Side leftSide, Side rightSide, Consumer<long[]> sink) {
    List<Integer> order =
        IntStream.range(0, plan.partitions())
            .boxed()
            .sorted(
                Comparator.comparingLong((Integer p) -> leftSide.rowsOf(p) + rightSide.rowsOf(p))
                    .reversed())
            .toList();
    each("join", order.size(), i -> sink.accept(join(kernels, leftSide, rightSide, order.get(i))));
  }

  /** The groups of one partition. */
  private long[] join(JoinKernels kernels, Side leftSide, Side rightSide, int partition) {
    long rows = leftSide.rowsOf(partition);
    if (rows == 0 || rightSide.rowsOf(partition) == 0) {
      leftSide.closePartition(partition);
      rightSide.closePartition(partition);
      return new long[0];
    }
    long capacityMax = JoinPlan.capacity(rows);
    long capacity = firstCapacity(rows);
    try (DeviceBuffer counters = zeros(JoinKernels.COUNTERS)) {
      while (true) {
        try (DeviceBuffer table = device.allocate(JoinPlan.tableBytes(capacity, stride))) {
          long taken = build(kernels, leftSide, partition, table, capacity, counters);
          if (taken >= 0) {
            leftSide.closePartition(partition);
            probe(kernels, rightSide, partition, table, capacity);
            rightSide.closePartition(partition);
            return collect(kernels, table, capacity, taken, counters);
          }
        }
        rebuilt.incrementAndGet();
        capacity = Math.min(2 * capacity, capacityMax);
        counters.fill((byte) 0);
      }
    }
  }

  /**
   * A partition with many more rows than others has a key that is frequent, and not as many keys as
   * rows: its table begins as one for twice the rows that partitions have, and grows if that is not
   * enough.
   */
  private long firstCapacity(long rows) {
    long usual = Math.ceilDiv(left.rows(), plan.partitions());
    return JoinPlan.capacity(Math.min(rows, 2 * usual));
  }

  /** How many entries are taken; negative if there were too few. */
  private long build(
      JoinKernels kernels,
      Side side,
      int partition,
      DeviceBuffer table,
      long capacity,
      DeviceBuffer counters) {
    boolean isLargest = capacity == JoinPlan.capacity(side.rowsOf(partition));
    long probesMax = isLargest ? capacity : Math.min(PROBES_MAX, capacity);
    kernels.clear.launch(kernels.each(capacity + 1), table, capacity, stride);
    for (int piece = 0; piece < side.pieces(partition); piece++) {
      int rows = side.rowsOfPiece(partition, piece);
      kernels.build.launch(
          kernels.each(rows),
          side.piece(partition, piece),
          rows,
          side.table.words(),
          plan.partitionBits(),
          table,
          capacity,
          stride,
          probesMax,
          counters);
    }
    long[] seen = counters.toLongs();
    return seen[JoinKernels.OVERFLOWED] == 0 ? seen[JoinKernels.TAKEN] : -1;
  }

  private void probe(
      JoinKernels kernels, Side side, int partition, DeviceBuffer table, long capacity) {
    for (int piece = 0; piece < side.pieces(partition); piece++) {
      int rows = side.rowsOfPiece(partition, piece);
      kernels.probe.launch(
          kernels.each(rows),
          side.piece(partition, piece),
          rows,
          side.table.words(),
          plan.partitionBits(),
          table,
          capacity,
          stride);
    }
  }

  private long[] collect(
      JoinKernels kernels, DeviceBuffer table, long capacity, long taken, DeviceBuffer counters) {
    long entryBytes = (long) stride * Long.BYTES;
    try (DeviceBuffer groups = device.allocate(taken * entryBytes)) {
      kernels.collect.launch(kernels.each(capacity + 1), table, capacity, stride, counters, groups);
      long collected = counters.toLongs()[JoinKernels.COLLECTED];
      if (collected == 0) {
        return new long[0];
      }
      return groups.slice(0, collected * entryBytes).toLongs();
    }
  }

  // --- what must fit ------------------------------------------------------------------------

  private void requireRoomForChunks(List<Side> sides) {
    long needed = 0;
    for (Side side : sides) {
      needed = Math.max(needed, 2 * side.chunkBytes() + (long) plan.partitions() * Long.BYTES);
    }
    requireRoom(needed, "sorting a chunk of rows");
    SpillConfig spill = fairlead.config().memory().spill();
    long leaves = left.bytes() + right.bytes() - device.memory().limit();
    if (spill.hostBytesMax() > 0 && spill.directory().isEmpty() && spill.hostBytesMax() < leaves) {
      throw DeviceTooSmallException.everywhere(leaves, spill.hostBytesMax());
    }
  }

  private void requireRoomForTables(Side leftSide, Side rightSide) {
    long largest = Math.max(leftSide.chunkBytes(), rightSide.chunkBytes());
    for (int p = 0; p < plan.partitions(); p++) {
      long rows = leftSide.rowsOf(p);
      if (rows > 0 && rightSide.rowsOf(p) > 0) {
        long table = JoinPlan.tableBytes(firstCapacity(rows), stride);
        largest = Math.max(largest, table);
        long piece = Math.max(leftSide.pieceBytesOf(p), rightSide.pieceBytesOf(p));
        long groups = Math.min(rows, firstCapacity(rows)) * stride * Long.BYTES;
        requireRoom(table + Math.max(piece, groups), "joining partition " + p);
      }
    }
    requireRoomBelow(largest);
  }

  /** Host memory is pinned in blocks of powers of two; a buffer larger than that cannot leave. */
  private void requireRoomBelow(long largest) {
    long limit = fairlead.config().memory().spill().hostBytesMax();
    long needed = 2 * Long.highestOneBit(2 * largest - 1);
    boolean spills = plan.inCoreBytes(left, right) > device.memory().limit();
    if (spills && limit > 0 && limit < needed) {
      throw DeviceTooSmallException.below(largest, needed, limit, plan.partitions());
    }
  }

  private void requireRoom(long bytes, String what) {
    long limit = device.memory().limit();
    if (bytes > limit) {
      throw new DeviceTooSmallException(what, bytes, limit, plan.partitions());
    }
  }

  // --- tasks --------------------------------------------------------------------------------

  private interface ChunkStep {
    void run(Side side, int chunk);
  }

  private interface Step {
    void run(int item);
  }

  private void eachChunk(String phase, List<Side> sides, ChunkStep step) {
    int first = sides.getFirst().chunks();
    each(
        phase,
        first + sides.getLast().chunks(),
        i -> {
          Side side = i < first ? sides.getFirst() : sides.getLast();
          step.run(side, i < first ? i : i - first);
        });
  }

  /** All items in about this order, by as many tasks as the plan says. */
  private void each(String phase, int items, Step step) {
    AtomicInteger next = new AtomicInteger();
    AtomicInteger done = new AtomicInteger();
    try (TaskScope<@Nullable Void> scope = fairlead.scope(ScopeOptions.DEFAULT.name(phase))) {
      for (int task = 0; task < Math.min(plan.tasks(), items); task++) {
        scope.fork(
            () -> {
              for (int i = next.getAndIncrement(); i < items; i = next.getAndIncrement()) {
                step.run(i);
                done.incrementAndGet();
                look();
                progress.update(
                    () -> String.format(Locale.ROOT, "%s: %,d of %,d", phase, done.get(), items));
              }
              return null;
            });
      }
      scope.join();
    }
  }

  private void look() {
    MemoryStats memory = device.memory();
    onHost.accumulate(memory.onHost());
    onDisk.accumulate(memory.onDisk());
  }
}
