package io.fairlead.cli;

import io.fairlead.comm.Comm;
import io.fairlead.device.DeviceStats;
import io.fairlead.fault.FairleadException;
import io.fairlead.fault.Severity;
import io.fairlead.memory.Device;
import io.fairlead.runtime.Fairlead;
import io.fairlead.runtime.FairleadConfig;
import io.fairlead.solver.BadInputException;
import io.fairlead.solver.CsrMatrix;
import io.fairlead.solver.DenseColumns;
import io.fairlead.solver.MatrixMarket;
import io.fairlead.solver.NotPositiveDefiniteException;
import io.fairlead.solver.Preconditioner;
import io.fairlead.solver.Solution;
import io.fairlead.solver.SolveListener;
import io.fairlead.solver.SolveReport;
import io.fairlead.solver.SolverOptions;
import io.fairlead.solver.SparseSolver;
import io.fairlead.task.TaskScope;
import java.io.IOException;
import java.io.PrintWriter;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicInteger;

/** One run of {@code fairlead solve}: read, set up, solve, write. Blocks until it is done. */
final class SolveRun {
  private static final long PREPARE_BYTES_MIN = 1L << 18;

  private final SolveRequest request;
  private final Progress progress;
  private final PrintWriter standardOutput;

  SolveRun(SolveRequest request, Progress progress, PrintWriter standardOutput) {
    this.request = request;
    this.progress = progress;
    this.standardOutput = standardOutput;
  }

  SolveOutcome run() throws IOException {
    try {
      return solve();
    } catch (NotPositiveDefiniteException indefinite) {
      // Ranks that are processes all find the same, and none waits for another.
      throw RanksAgree.said(request.launched().rank(), named(indefinite));
    }
  }

  /** The solver knows no files; a user wants to know which one it was. */
  private RuntimeException named(NotPositiveDefiniteException indefinite) {
    if (request.file() == null) {
      return indefinite;
    }
    return new BadInputException(
        request.file(), BadInputException.NO_LINE, String.valueOf(indefinite.getMessage()));
  }

  private SolveOutcome solve() throws IOException {
    Clock clock = new Clock();
    try (Opening opening = Opening.begin(config(), worthPreparing())) {
      SolveInput input = read(opening);
      double read = clock.lap();
      CsrMatrix matrix = input.matrix();
      progress.done(
          String.format(
              Locale.ROOT, "read: %,d rows, %,d entries", matrix.rows(), matrix.entries()));
      Fairlead fairlead = opening.open();
      agree(fairlead, input);
      clock.lap();
      try (SparseSolver solver = setUp(fairlead, matrix)) {
        double setup = clock.lap();
        progress.done(
            String.format(
                Locale.ROOT,
                "set up: %d levels, operator complexity %.2f, kernels %s",
                solver.setupReport().levels().size(),
                solver.setupReport().operatorComplexity(),
                solver.setupReport().kernels()));
        opening.prepared();
        return solveAndWrite(fairlead, solver, input, read, setup);
      }
    }
  }

  private SolveInput read(Opening opening) {
    try {
      return SolveInput.read(request, progress);
    } catch (RuntimeException failure) {
      if (request.launched().areProcesses()) {
        RanksAgree.onGoing(opening.open().world(), failure);
      }
      throw failure;
    }
  }

  /** Ranks that do not solve the same would wait for messages that never come. */
  private void agree(Fairlead fairlead, SolveInput input) {
    if (!request.launched().areProcesses()) {
      return;
    }
    RanksAgree.onGoing(fairlead.world(), null);
    RanksAgree.onSystem(fairlead.world(), input.prints());
    RanksAgree.onSystem(
        fairlead.world(),
        Double.doubleToLongBits(request.tolerance()),
        request.maxIterations(),
        request.preconditioner().name().hashCode(),
        request.jobs());
  }

  private SparseSolver setUp(Fairlead fairlead, CsrMatrix matrix) {
    if (!request.launched().areProcesses()) {
      return SparseSolver.setup(fairlead, matrix, options());
    }
    Comm world = fairlead.world();
    try {
      return SparseSolver.setup(fairlead, world, matrix, options());
    } catch (NotPositiveDefiniteException everywhere) {
      throw everywhere; // all ranks find the same, and none waits for another
    } catch (RuntimeException | Error failure) {
      world.fail(failure);
      throw failure;
    }
  }

  /** Reading so much takes long enough for a small problem to be solved meanwhile. */
  private boolean worthPreparing() {
    Path file = request.file();
    return file != null
        && file.toFile().length() >= PREPARE_BYTES_MIN
        && request.preconditioner() == Preconditioner.AMG
        && Runtime.getRuntime().availableProcessors() > 1;
  }

  private SolveOutcome solveAndWrite(
      Fairlead fairlead, SparseSolver solver, SolveInput input, double read, double setup)
      throws IOException {
    long kernelsBefore = kernelNanos(fairlead);
    Clock clock = new Clock();
    List<Solution> solutions = solutions(fairlead, solver, input);
    double solve = clock.lap();
    long kernels = kernelNanos(fairlead) - kernelsBefore;
    DenseColumns x = columns(input.matrix().rows(), solutions);
    if (request.out() != null && request.launched().isFirst()) {
      writeColumns(request.out(), x);
    }
    List<SolveReport> reports = solutions.stream().map(Solution::report).toList();
    return new SolveOutcome(
        request,
        fairlead.device().info().name(),
        input.matrix().rows(),
        input.matrix().entries(),
        solver.setupReport(),
        reports,
        norm2(x),
        sum(x),
        fairlead.devices().stream().mapToLong(device -> device.memory().peak()).sum(),
        new SolveOutcome.Times(
            read,
            setup,
            solve,
            kernelsBefore < 0 ? -1 : kernels * 1e-9,
            reports.stream().mapToDouble(report -> report.seconds().waits()).sum(),
            reports.stream().mapToDouble(report -> report.seconds().messages()).sum(),
            reports.stream().mapToDouble(report -> report.seconds().host()).sum()));
  }

  private void writeColumns(Path file, DenseColumns x) {
    try {
      if (request.columnsOnStandardOutput()) {
        progress.clear();
        MatrixMarket.writeColumns(standardOutput, x);
      } else {
        MatrixMarket.writeColumns(file, x);
        progress.done(String.format(Locale.ROOT, "wrote %s", file));
      }
    } catch (IOException e) {
      throw new AtomicFile.UnwritableException(file.toString(), e);
    }
  }

  private FairleadConfig config() {
    FairleadConfig config =
        FairleadConfig.fromSystem().withDevice(request.device()).withWaitMode(request.waitMode());
    return request.deviceMemory() == null
        ? config
        : config.withDeviceMemory(Objects.requireNonNull(request.deviceMemory()));
  }

  private SolverOptions options() {
    return SolverOptions.DEFAULT
        .withTolerance(request.tolerance())
        .withMaxIterations(request.maxIterations())
        .withPreconditioner(request.preconditioner())
        .withRanks(request.ranks())
        .withListener(shown());
  }

  private SolveListener shown() {
    return new SolveListener() {
      @Override
      public void level(int level, int rows, long entries) {
        progress.update(
            () ->
                String.format(
                    Locale.ROOT,
                    "setting up level %d: %,d rows, %,d entries",
                    level,
                    rows,
                    entries));
      }

      @Override
      public void iteration(int iteration, double relativeResidual) {
        progress.update(
            () ->
                String.format(
                    Locale.ROOT,
                    "iteration %d: relative residual %.3e",
                    iteration,
                    relativeResidual));
      }
    };
  }

  private List<Solution> solutions(Fairlead fairlead, SparseSolver solver, SolveInput input) {
    List<List<Solution>> jobs = new ArrayList<>(Collections.nCopies(request.jobs(), List.of()));
    AtomicInteger next = new AtomicInteger();
    Runnable worker =
        () -> {
          for (int job = next.getAndIncrement(); job < jobs.size(); job = next.getAndIncrement()) {
            SolveListener listener = job == 0 ? shown() : SolveListener.SILENT;
            jobs.set(job, allColumns(solver, input, listener));
          }
        };
    if (request.atOnce() == 1) {
      worker.run();
    } else {
      runAtOnce(fairlead, worker);
    }
    requireSame(jobs);
    return jobs.getFirst();
  }

  private void runAtOnce(Fairlead fairlead, Runnable worker) {
    try (TaskScope<Boolean> scope = fairlead.scope()) {
      for (int i = 0; i < request.atOnce(); i++) {
        scope.fork(
            () -> {
              worker.run();
              return true;
            });
      }
      scope.join();
    }
  }

  private static List<Solution> allColumns(
      SparseSolver solver, SolveInput input, SolveListener listener) {
    List<Solution> solutions = new ArrayList<>();
    for (int column = 0; column < input.b().count(); column++) {
      solutions.add(solver.solve(input.b().column(column), input.startOf(column), listener));
    }
    return solutions;
  }

  /** All jobs solve the same; if one bit differs, something was out of order. */
  private static void requireSame(List<List<Solution>> jobs) {
    for (int job = 1; job < jobs.size(); job++) {
      for (int column = 0; column < jobs.get(job).size(); column++) {
        double[] first = jobs.getFirst().get(column).x();
        int at = Arrays.mismatch(first, jobs.get(job).get(column).x());
        if (at >= 0) {
          throw new JobsDifferException(job, column, at);
        }
      }
    }
  }

  private static DenseColumns columns(int rows, List<Solution> solutions) {
    return new DenseColumns(rows, solutions.stream().map(Solution::x).toArray(double[][]::new));
  }

  private static double norm2(DenseColumns x) {
    double squares = 0;
    for (double[] column : x.columns()) {
      for (double value : column) {
        squares += value * value;
      }
    }
    return Math.sqrt(squares);
  }

  private static double sum(DenseColumns x) {
    return x.columns().stream().mapToDouble(column -> Arrays.stream(column).sum()).sum();
  }

  private static long kernelNanos(Fairlead fairlead) {
    List<Long> each =
        fairlead.devices().stream()
            .map(Device::context)
            .map(context -> context.stats())
            .map(DeviceStats::kernelNanos)
            .toList();
    return each.contains(-1L) ? -1 : each.stream().mapToLong(Long::longValue).sum();
  }

  /** Seconds since it was last asked. */
  private static final class Clock {
    private long last = System.nanoTime();

    double lap() {
      long now = System.nanoTime();
      double seconds = (now - last) * 1e-9;
      last = now;
      return seconds;
    }
  }

  /** Solves of one system at the same time gave different results. */
  static final class JobsDifferException extends FairleadException {
    private static final long serialVersionUID = 1L;

    JobsDifferException(int job, int column, int at) {
      super(
          Severity.PROCESS,
          "job "
              + job
              + " differs from job 0 in entry "
              + (at + 1)
              + " of system "
              + (column + 1)
              + ", although they solve the same: device work ran out of order; please report it",
          null);
    }
  }
}
