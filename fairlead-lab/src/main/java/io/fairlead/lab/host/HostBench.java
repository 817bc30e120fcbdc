package io.fairlead.lab.host;

import static java.lang.foreign.ValueLayout.JAVA_DOUBLE;
import static java.lang.foreign.ValueLayout.JAVA_INT;

import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.Grid;
import io.fairlead.device.spi.JavaKernel;
import io.fairlead.device.spi.ModuleImage;
import io.fairlead.host.HostDriverProvider;
import io.fairlead.sim.LaunchArguments;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.Locale;
import java.util.Map;

/**
 * Is the embedded device good enough to be used? Large kernels against a plain parallel loop on as
 * many threads, in turns; the latency of one launch; how many small launches a second.
 *
 * <p>{@code java io.fairlead.lab.host.HostBench [workers] [rounds]}. Trust nothing it prints on a
 * busy machine; it prints the load for that reason.
 */
public final class HostBench implements AutoCloseable {
  private static final int ITEMS = 10_000_000;
  private static final int GRID = 100;
  private static final int LAUNCHES = 50_000;
  private static final int WARM_UPS = 5;

  /** Short, so that some of them are undisturbed on a machine that is not. */
  private static final int RUN_LAUNCHES = 6_400;

  private static final int RUNS = 150;
  private static final int BATCH = 256;

  private final int workers;
  private final int rounds;
  private final Driver driver;
  private final long context;
  private final long stream;
  private final long module;
  private final Arena arena = Arena.ofShared();
  private long ticket;

  private HostBench(int workers, int rounds) {
    this.workers = workers;
    this.rounds = rounds;
    this.driver =
        new HostDriverProvider().open(Map.of("workers", Integer.toString(workers), "memory", "1g"));
    this.context = driver.retain(0);
    driver.makeCurrent(context);
    this.stream = driver.streamCreate(context, 0, null);
    this.module =
        driver.moduleLoad(
            context,
            new ModuleImage.Java(
                Map.of("axpy", AXPY, "spmv", SPMV, "empty", (arguments, begin, end) -> {})));
  }

  /** Runs all of it and prints a line for each figure. */
  public static void main(String[] args) {
    int cores = Runtime.getRuntime().availableProcessors();
    int workers = args.length > 0 ? Integer.parseInt(args[0]) : cores;
    int rounds = args.length > 1 ? Integer.parseInt(args[1]) : 31;
    print("%d workers, %d processors, load average %.2f", workers, cores, load());
    try (HostBench bench = new HostBench(workers, rounds)) {
      bench.axpy();
      bench.spmv();
      bench.latency();
      bench.throughput();
      bench.manyStreams();
      bench.allocation();
    }
    print("load average at the end %.2f", load());
  }

  private static double load() {
    return ManagementFactory.getOperatingSystemMXBean().getSystemLoadAverage();
  }

  private static void print(String format, Object... values) {
    System.out.printf(Locale.ROOT, format + "%n", values);
  }

  // --- large kernels --------------------------------------------------------------------------

  private static void axpy(double a, MemorySegment x, MemorySegment y, long begin, long end) {
    for (long i = begin; i < end; i++) {
      y.setAtIndex(JAVA_DOUBLE, i, y.getAtIndex(JAVA_DOUBLE, i) + a * x.getAtIndex(JAVA_DOUBLE, i));
    }
  }

  private static final JavaKernel AXPY =
      (arguments, begin, end) ->
          axpy(arguments.f64(0), arguments.buffer(1), arguments.buffer(2), begin, end);

  private void axpy() {
    long bytes = 8L * ITEMS;
    long x = zeros(bytes);
    long y = zeros(bytes);
    MemorySegment hostX = arena.allocate(bytes, 256);
    MemorySegment hostY = arena.allocate(bytes, 256);
    long kernel = driver.kernel(module, "axpy");
    LaunchArguments arguments = new LaunchArguments().scalar(1.5).buffer(x, bytes).buffer(y, bytes);
    compare(
        "axpy, 10 M",
        ITEMS,
        () -> driver.launch(stream, kernel, Grid.of(ITEMS), arguments),
        (begin, end) -> axpy(1.5, hostX, hostY, begin, end));
    driver.freeAsync(stream, x);
    driver.freeAsync(stream, y);
  }

  /** A row of the matrix: columns and values, seven at most, as in a 3-D Poisson problem. */
  private static void spmv(
      MemorySegment starts,
      MemorySegment columns,
      MemorySegment values,
      MemorySegment x,
      MemorySegment y,
      long begin,
      long end) {
    for (long row = begin; row < end; row++) {
      double sum = 0;
      int last = starts.getAtIndex(JAVA_INT, row + 1);
      for (long k = starts.getAtIndex(JAVA_INT, row); k < last; k++) {
        sum +=
            values.getAtIndex(JAVA_DOUBLE, k)
                * x.getAtIndex(JAVA_DOUBLE, columns.getAtIndex(JAVA_INT, k));
      }
      y.setAtIndex(JAVA_DOUBLE, row, sum);
    }
  }

  private static final JavaKernel SPMV =
      (arguments, begin, end) ->
          spmv(
              arguments.buffer(0),
              arguments.buffer(1),
              arguments.buffer(2),
              arguments.buffer(3),
              arguments.buffer(4),
              begin,
              end);

  private void spmv() {
    int rows = GRID * GRID * GRID;
    MemorySegment starts = arena.allocate(4L * (rows + 1), 256);
    MemorySegment columns = arena.allocate(4L * 7 * rows, 256);
    MemorySegment values = arena.allocate(8L * 7 * rows, 256);
    MemorySegment x = arena.allocate(8L * rows, 256);
    MemorySegment y = arena.allocate(8L * rows, 256);
    poisson(starts, columns, values);
    LaunchArguments arguments = new LaunchArguments();
    for (MemorySegment host : new MemorySegment[] {starts, columns, values, x, y}) {
      long device = driver.allocAsync(stream, host.byteSize());
      driver.copyToDevice(stream, device, host);
      arguments.buffer(device, host.byteSize());
    }
    long kernel = driver.kernel(module, "spmv");
    compare(
        "spmv, 1 M rows",
        rows,
        () -> driver.launch(stream, kernel, Grid.of(rows), arguments),
        (begin, end) -> spmv(starts, columns, values, x, y, begin, end));
  }

  private static void poisson(MemorySegment starts, MemorySegment columns, MemorySegment values) {
    int[] strides = {-GRID * GRID, -GRID, -1, 0, 1, GRID, GRID * GRID};
    int rows = GRID * GRID * GRID;
    int k = 0;
    for (int row = 0; row < rows; row++) {
      starts.setAtIndex(JAVA_INT, row, k);
      for (int stride : strides) {
        int column = row + stride;
        if (column >= 0 && column < rows) {
          columns.setAtIndex(JAVA_INT, k, column);
          values.setAtIndex(JAVA_DOUBLE, k, stride == 0 ? 6 : -1);
          k++;
        }
      }
    }
    starts.setAtIndex(JAVA_INT, rows, k);
  }

  /** In turns, so that a disturbance hits both. */
  private void compare(String what, long items, Runnable launch, ParallelLoop.Body body) {
    double[] device = new double[rounds];
    double[] loop = new double[rounds];
    try (ParallelLoop plain = new ParallelLoop(workers)) {
      for (int i = -WARM_UPS; i < rounds; i++) {
        double deviceMillis = millis(() -> runAndWait(launch));
        double loopMillis = millis(() -> plain.run(items, body));
        if (i >= 0) {
          device[i] = deviceMillis;
          loop[i] = loopMillis;
        }
      }
    }
    Arrays.sort(device);
    Arrays.sort(loop);
    print(
        "%-16s device %7.3f ms, plain loop %7.3f ms, ratio %.2f; best %.3f and %.3f, ratio %.2f",
        what,
        device[rounds / 2],
        loop[rounds / 2],
        device[rounds / 2] / loop[rounds / 2],
        device[0],
        loop[0],
        device[0] / loop[0]);
  }

  private static double millis(Runnable body) {
    long start = System.nanoTime();
    body.run();
    return (System.nanoTime() - start) / 1e6;
  }

  /** The caller parks, as whoever waits for milliseconds should: the workers need its core. */
  private void runAndWait(Runnable launch) {
    launch.run();
    driver.streamSynchronize(stream);
  }

  private void await() {
    driver.signal(stream, ++ticket);
    spinUntil(stream, ticket);
  }

  private void spinUntil(long aStream, long value) {
    while (driver.reached(aStream) < value) {
      Thread.onSpinWait();
    }
  }

  private long zeros(long bytes) {
    long address = driver.allocAsync(stream, bytes);
    driver.fill(stream, address, bytes, (byte) 0);
    return address;
  }

  // --- small kernels --------------------------------------------------------------------------

  private LaunchArguments small() {
    long x = zeros(8L * 100);
    long y = zeros(8L * 100);
    return new LaunchArguments().scalar(1.5).buffer(x, 800).buffer(y, 800);
  }

  private void latency() {
    long kernel = driver.kernel(module, "axpy");
    LaunchArguments arguments = small();
    Grid grid = Grid.of(100);
    long[] nanos = new long[LAUNCHES];
    for (int repeat = 0; repeat < WARM_UPS; repeat++) {
      for (int i = 0; i < LAUNCHES; i++) {
        long start = System.nanoTime();
        driver.launch(stream, kernel, grid, arguments);
        await();
        nanos[i] = System.nanoTime() - start;
      }
    }
    Arrays.sort(nanos);
    print(
        "launch to done   p1 %d ns, p10 %d ns, p50 %d ns, p99 %d ns (axpy of 100, spinning waiter)",
        nanos[LAUNCHES / 100],
        nanos[LAUNCHES / 10],
        nanos[LAUNCHES / 2],
        nanos[LAUNCHES / 100 * 99]);
  }

  /** Nanoseconds of each of {@link #RUNS} runs, ascending: the first is the least disturbed. */
  private static long[] runs(Runnable run) {
    long[] nanos = new long[RUNS];
    for (int i = -RUNS; i < RUNS; i++) {
      long start = System.nanoTime();
      run.run();
      nanos[Math.max(i, 0)] = System.nanoTime() - start;
    }
    Arrays.sort(nanos);
    return nanos;
  }

  private static void printRate(String what, String unit, long[] nanos) {
    print(
        "%-16s %.2f M %s/s at best, %.2f at the median of %d runs",
        what, RUN_LAUNCHES * 1e3 / nanos[0], unit, RUN_LAUNCHES * 1e3 / nanos[RUNS / 2], RUNS);
  }

  private void throughput() {
    long kernel = driver.kernel(module, "axpy");
    LaunchArguments arguments = small();
    Grid grid = Grid.of(100);
    long[] enqueue = new long[1];
    enqueue[0] = Long.MAX_VALUE;
    long[] nanos =
        runs(
            () -> {
              for (int batch = 0; batch < RUN_LAUNCHES / BATCH; batch++) {
                long start = System.nanoTime();
                for (int i = 0; i < BATCH; i++) {
                  driver.launch(stream, kernel, grid, arguments);
                }
                enqueue[0] = Math.min(enqueue[0], System.nanoTime() - start);
                driver.signal(stream, ++ticket);
                spinUntil(stream, ticket - 1); // at most 512 unfinished, as the device layer has it
              }
              await();
            });
    printRate("one stream", "launches", nanos);
    print("enqueue          %d ns at best, of %d in a row", enqueue[0] / BATCH, BATCH);
  }

  private void manyStreams() {
    long kernel = driver.kernel(module, "empty");
    LaunchArguments arguments = new LaunchArguments();
    Grid grid = Grid.of(1);
    long[] streams = new long[64];
    for (int i = 0; i < streams.length; i++) {
      streams[i] = driver.streamCreate(context, 0, null);
    }
    long[] nanos =
        runs(
            () -> {
              for (int i = 0; i < RUN_LAUNCHES / streams.length; i++) {
                for (long s : streams) {
                  driver.launch(s, kernel, grid, arguments);
                }
              }
              ticket++;
              for (long s : streams) {
                driver.signal(s, ticket);
              }
              for (long s : streams) {
                spinUntil(s, ticket);
              }
            });
    printRate("64 streams", "launches", nanos);
  }

  private void allocation() {
    long[] nanos =
        runs(
            () -> {
              for (int i = 0; i < RUN_LAUNCHES; i++) {
                long block = driver.allocAsync(stream, 1 << (8 + i % 12));
                driver.freeAsync(stream, block);
                if (i % BATCH == BATCH - 1) {
                  driver.signal(stream, ++ticket);
                  spinUntil(stream, ticket - 1);
                }
              }
              await();
            });
    printRate("alloc and free", "pairs", nanos);
  }

  @Override
  public void close() {
    driver.makeCurrent(0);
    driver.close();
    arena.close();
  }
}
