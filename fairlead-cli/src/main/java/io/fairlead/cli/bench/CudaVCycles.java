package io.fairlead.cli.bench;

import com.sun.management.OperatingSystemMXBean;
import io.fairlead.task.WaitMode;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.stream.Stream;

/**
 * Twenty V-cycles on a GPU, as in the benchmark of row 000.4: what each waiting mode takes, on one
 * rank and on two of one process that share the GPU.
 */
final class CudaVCycles {
  /** 37.6 million unknowns, as many as that benchmark had. */
  private static final int LARGE_GRID = 335;

  /** A setup holds the matrix, its products and their parts: some 600 bytes for each unknown. */
  private static final double HEAP_SHARE = 0.6;

  private static final long HEAP_MIN = 1L << 30;
  private static final double MILLIS = 1e3;

  /** What the setup takes, its parts, and what it was expected to take at full size. */
  private static final List<String> SECONDS =
      List.of("setup", "setup.matrix", "setup.levels", "expected");

  private static final List<String> LARGE_SETUP =
      Stream.concat(Stream.of("side"), SECONDS.stream()).map(CudaVCycles::large).toList();

  private CudaVCycles() {}

  static List<String> ids() {
    List<String> ids = new ArrayList<>(ids(CudaVCycleWorker.SMALL));
    ids.addAll(LARGE_SETUP);
    ids.addAll(ids(CudaVCycleWorker.LARGE));
    return ids;
  }

  private static List<String> ids(String size) {
    List<String> ids = new ArrayList<>();
    for (int ranks : CudaVCycleWorker.RANKS) {
      for (WaitMode mode : WaitMode.values()) {
        ids.add(id(size, ranks) + "." + mode.name().toLowerCase(Locale.ROOT));
      }
      ids.add(id(size, ranks) + ".nonblocking_over_blocking");
      ids.add(id(size, ranks) + ".nonblocking_over_spin");
    }
    return ids;
  }

  private static String large(String what) {
    return "cuda.vcycle." + CudaVCycleWorker.LARGE + "." + what;
  }

  private static String id(String size, int ranks) {
    return "cuda.vcycle." + size + "." + ranks + (ranks == 1 ? "rank" : "ranks");
  }

  static void measure(Suite.Options options, CudaRuns runs) throws Exception {
    boolean small = options.wantsAny(ids(CudaVCycleWorker.SMALL));
    boolean large = options.wantsAny(ids(CudaVCycleWorker.LARGE));
    large |= options.wantsAny(LARGE_SETUP);
    List<String> args = new ArrayList<>(List.of("bench", "cuda-vcycle-worker"));
    args.addAll(List.of("--small", "" + (small ? options.quick() ? 5 : 60 : 0)));
    args.addAll(List.of("--large", "" + (large ? options.quick() ? 3 : 15 : 0)));
    args.addAll(List.of("--grid", "" + (options.quick() ? 96 : LARGE_GRID)));
    // at its full size from the start: growing would move arrays of gigabytes
    List<String> heap =
        List.of("-Xms" + heapBytes(), "-Xmx" + heapBytes(), "-XX:+UseTransparentHugePages");
    runs.measure("vcycle", args, heap, ChildProcess.Place.all(), CudaVCycleWorker.LIMIT);
  }

  private static long heapBytes() {
    OperatingSystemMXBean system =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    return Math.max(HEAP_MIN, (long) (HEAP_SHARE * system.getTotalMemorySize()));
  }

  static List<Row> rows(CudaRuns runs) {
    List<Row> rows = new ArrayList<>(rows(CudaVCycleWorker.SMALL, runs));
    for (Samples side : runs.of("vcycle " + CudaVCycleWorker.LARGE + ".side")) {
      rows.add(Row.exact(large("side"), "points", "higher", side.median()));
    }
    for (String what : SECONDS) {
      for (Samples seconds : runs.of("vcycle " + CudaVCycleWorker.LARGE + "." + what)) {
        rows.add(Row.exact(large(what), "s", "lower", seconds.median()));
      }
    }
    rows.addAll(rows(CudaVCycleWorker.LARGE, runs));
    return rows;
  }

  private static List<Row> rows(String size, CudaRuns runs) {
    List<Row> rows = new ArrayList<>();
    for (int ranks : CudaVCycleWorker.RANKS) {
      for (WaitMode mode : WaitMode.values()) {
        String id = id(size, ranks) + "." + mode.name().toLowerCase(Locale.ROOT);
        for (Samples seconds : of(size, ranks, mode, runs)) {
          rows.add(Row.median(id, "ms", "lower", seconds.times(MILLIS)));
        }
      }
      for (Samples ours : of(size, ranks, WaitMode.NONBLOCKING, runs)) {
        addRatio(
            id(size, ranks) + ".nonblocking_over_blocking",
            ours,
            of(size, ranks, WaitMode.BLOCKING, runs),
            rows);
        addRatio(
            id(size, ranks) + ".nonblocking_over_spin",
            ours,
            of(size, ranks, WaitMode.SPIN, runs),
            rows);
      }
    }
    return rows;
  }

  private static List<Samples> of(String size, int ranks, WaitMode mode, CudaRuns runs) {
    return runs.of("vcycle " + size + "." + ranks + "." + mode);
  }

  private static void addRatio(String id, Samples ours, List<Samples> theirs, List<Row> rows) {
    for (Samples each : theirs) {
      rows.add(Row.ratio(id, ours, each).bounds(1.02, 1.0));
    }
  }
}
