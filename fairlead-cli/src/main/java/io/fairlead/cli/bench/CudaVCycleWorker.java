package io.fairlead.cli.bench;

import io.fairlead.cli.HangWatch;
import io.fairlead.runtime.Fairlead;
import io.fairlead.runtime.FairleadConfig;
import io.fairlead.solver.CsrMatrix;
import io.fairlead.solver.Poisson;
import io.fairlead.solver.VCycleBenchmark;
import io.fairlead.task.WaitMode;
import java.io.PrintWriter;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.Callable;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;

/**
 * The process in which {@link CudaSuite} measures V-cycles in every waiting mode; not for users.
 *
 * <p>A problem is set up once, for one rank and for two; the modes take turns on that. Setting up
 * runs on the CPU, and its time grows with the unknowns: a problem that would take longer than
 * there is time for becomes a smaller one, which is said, with the time that the one asked for
 * would have taken. Rounds end with the time that there is, too.
 */
@Command(name = "cuda-vcycle-worker", hidden = true)
public final class CudaVCycleWorker implements Callable<Integer> {
  static final String SMALL = "64";
  static final String LARGE = "large";
  static final List<Integer> RANKS = List.of(1, 2);

  /** Longer than all of it takes where nothing hangs. */
  static final Duration LIMIT = Duration.ofMinutes(5);

  private static final int CYCLES = 20;
  private static final int SMALL_GRID = 64;

  /** On a smaller one the time of a setup does not tell how it grows. */
  private static final int PROBE_GRID = 128;

  /** Setups of larger problems take somewhat longer for each unknown: caches. */
  private static final double GROWTH = 1.3;

  private static final double NANOS = 1e-9;
  private static final int WARM_UP_ROUNDS = 6;
  private static final long WARM_UP_NANOS = 3_000_000_000L;

  @CommandLine.Spec private @Nullable CommandSpec spec;

  @Option(names = "--device")
  private String device = "cuda";

  @Option(names = "--small", description = "Rounds at 64 x 64 x 64; 0: none.")
  private int smallRounds;

  @Option(names = "--large", description = "Rounds on the large problem; 0: none.")
  private int largeRounds;

  @Option(names = "--grid", description = "Points along a side of the large problem.")
  private int grid;

  @Option(names = "--setup-seconds", description = "The large one shrinks to be set up in that.")
  private double setupSeconds = 60;

  @Option(names = "--round-seconds", description = "No round of the large one begins after that.")
  private double roundSeconds = 60;

  /** Made by the command line parser. */
  public CudaVCycleWorker() {}

  @Override
  public Integer call() {
    FairleadConfig config = FairleadConfig.fromSystem().withDevice(device);
    try (HangWatch _ = HangWatch.start("V-cycles", LIMIT, line().getErr());
        Fairlead fairlead = Fairlead.open(config)) {
      small(fairlead);
      if (largeRounds > 0) {
        large(fairlead);
      }
    }
    return 0;
  }

  /** Without rounds it warms the code up for the large one. */
  private void small(Fairlead fairlead) {
    try (Problem problem = Problem.setUp(fairlead, SMALL_GRID)) {
      problem.warmUp();
      measure(SMALL, problem, smallRounds, Double.POSITIVE_INFINITY);
    }
  }

  private void large(Fairlead fairlead) {
    int side = grid;
    if (grid > PROBE_GRID) {
      try (Problem probe = Problem.setUp(fairlead, PROBE_GRID)) {
        side = sideThatFits(grid, PROBE_GRID, probe.setupSeconds(), setupSeconds);
        double all = secondsOf(grid, PROBE_GRID, probe.setupSeconds());
        print(LARGE + ".expected", List.of(all));
      }
    }
    try (Problem problem = Problem.setUp(fairlead, side)) {
      if (grid <= PROBE_GRID) {
        print(LARGE + ".expected", List.of(problem.setupSeconds()));
      }
      print(LARGE + ".side", List.of((double) side));
      print(LARGE + ".setup", List.of(problem.setupSeconds()));
      print(LARGE + ".setup.matrix", List.of(problem.matrixSeconds()));
      print(LARGE + ".setup.levels", List.of(problem.levelSeconds()));
      problem.warmUp();
      measure(LARGE, problem, largeRounds, roundSeconds);
    }
  }

  /** What a setup of {@code side} points along a side is expected to take. */
  static double secondsOf(int side, int probed, double probeSeconds) {
    return GROWTH * probeSeconds * Math.pow((double) side / probed, 3);
  }

  /** The points along a side whose setup takes at most so long, in steps of eight. */
  static int sideThatFits(int wanted, int probed, double probeSeconds, double secondsMax) {
    double fits = probed * Math.cbrt(secondsMax / (GROWTH * probeSeconds));
    return fits >= wanted ? wanted : Math.max(8, (int) fits / 8 * 8);
  }

  /** At least one round; no further one begins after so many seconds. */
  private void measure(String name, Problem problem, int rounds, double secondsMax) {
    Map<String, List<Double>> seconds = new LinkedHashMap<>();
    long start = System.nanoTime();
    for (int round = 0;
        round < rounds && (round == 0 || (System.nanoTime() - start) * NANOS < secondsMax);
        round++) {
      problem.round(
          round, (what, each) -> seconds.computeIfAbsent(what, key -> new ArrayList<>()).add(each));
    }
    seconds.forEach((what, each) -> print(name + "." + what, each));
  }

  private interface Times {
    void add(String what, double seconds);
  }

  /**
   * A problem that is set up, for each number of ranks.
   *
   * @param setupSeconds all of it
   * @param matrixSeconds of that, until there was a matrix
   * @param levelSeconds of that, for the levels, which all numbers of ranks share; what is left
   *     cuts them for the ranks, and brings them to the devices
   */
  private record Problem(
      List<VCycleBenchmark> byRanks, double setupSeconds, double matrixSeconds, double levelSeconds)
      implements AutoCloseable {
    static Problem setUp(Fairlead fairlead, int side) {
      long start = System.nanoTime();
      CsrMatrix matrix = Poisson.grid3d(side);
      double made = (System.nanoTime() - start) * NANOS;
      List<VCycleBenchmark> byRanks = VCycleBenchmark.setup(fairlead, matrix, RANKS);
      double all = (System.nanoTime() - start) * NANOS;
      double levels = byRanks.getFirst().setupReport().hierarchySeconds();
      return new Problem(byRanks, all, made, levels);
    }

    void warmUp() {
      long start = System.nanoTime();
      int round = 0;
      while (round < WARM_UP_ROUNDS || System.nanoTime() - start < WARM_UP_NANOS) {
        round(round++, (what, seconds) -> {});
      }
    }

    /**
     * All modes once for each number of ranks, each round beginning with another one; every other
     * round goes backwards, so that nobody always follows the same one.
     */
    void round(int round, Times times) {
      List<WaitMode> order = new ArrayList<>(List.of(WaitMode.values()));
      if (round % 2 == 1) {
        Collections.reverse(order);
      }
      Collections.rotate(order, round / 2);
      for (int k = 0; k < RANKS.size(); k++) {
        for (WaitMode mode : order) {
          double seconds = byRanks.get(k).run(CYCLES, mode).seconds();
          times.add(RANKS.get(k) + "." + mode, seconds);
        }
      }
    }

    @Override
    public void close() {
      byRanks.forEach(VCycleBenchmark::close);
    }
  }

  private CommandLine line() {
    return Objects.requireNonNull(spec).commandLine();
  }

  private void print(String name, List<Double> samples) {
    PrintWriter out = line().getOut();
    double[] values = samples.stream().mapToDouble(Double::doubleValue).toArray();
    out.println(SampleLine.text(name, values));
    out.flush();
  }
}
