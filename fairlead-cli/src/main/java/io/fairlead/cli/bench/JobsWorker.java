package io.fairlead.cli.bench;

import io.fairlead.runtime.Fairlead;
import io.fairlead.runtime.FairleadConfig;
import io.fairlead.solver.CsrMatrix;
import io.fairlead.solver.MatrixMarket;
import io.fairlead.solver.Poisson;
import io.fairlead.solver.SolverOptions;
import io.fairlead.solver.SparseSolver;
import io.fairlead.task.TaskScope;
import java.io.PrintWriter;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Objects;
import java.util.concurrent.Callable;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Parameters;

/**
 * The process in which {@link SolveSuite} solves one system many times, all at once and one by one
 * in turn, after a warm-up; not for users.
 */
@Command(name = "jobs-worker", hidden = true)
public final class JobsWorker implements Callable<Integer> {
  /** Rounds that are not counted: by then the compiler has seen everything. */
  private static final int WARM_UP = 6;

  private static final int POISSON_GRID = 17;

  @CommandLine.Spec private @Nullable CommandSpec spec;

  @Parameters(index = "0", description = "The matrix; - for a Poisson problem of about that size.")
  private String file = "";

  @Parameters(index = "1")
  private int jobs;

  @Parameters(index = "2")
  private long limit;

  @Parameters(index = "3")
  private int rounds;

  /** Made by the command line parser. */
  public JobsWorker() {}

  @Override
  public Integer call() {
    CsrMatrix matrix =
        file.equals("-")
            ? Poisson.grid3d(POISSON_GRID)
            : MatrixMarket.readMatrix(Path.of(file)).matrix();
    double[] ones = new double[matrix.cols()];
    Arrays.fill(ones, 1.0);
    double[] b = new double[matrix.rows()];
    matrix.multiply(ones, b);
    FairleadConfig config = FairleadConfig.fromSystem().withDevice("host").withDeviceMemory(limit);
    try (Fairlead fairlead = Fairlead.open(config);
        SparseSolver solver = SparseSolver.setup(fairlead, matrix, SolverOptions.DEFAULT)) {
      for (int round = -WARM_UP; round < rounds; round++) {
        round(fairlead, solver, b, round);
      }
      print("peak " + fairlead.device().memory().peak());
    }
    return 0;
  }

  /** Both once; every other round the other way round. */
  private void round(Fairlead fairlead, SparseSolver solver, double[] b, int round) {
    boolean atOnceFirst = round % 2 == 0;
    double first = atOnceFirst ? atOnce(fairlead, solver, b) : oneByOne(solver, b);
    double second = atOnceFirst ? oneByOne(solver, b) : atOnce(fairlead, solver, b);
    if (round >= 0) {
      print(atOnceFirst ? "sample " + first + " " + second : "sample " + second + " " + first);
    }
  }

  private double atOnce(Fairlead fairlead, SparseSolver solver, double[] b) {
    long start = System.nanoTime();
    try (TaskScope<Integer> scope = fairlead.scope()) {
      for (int job = 0; job < jobs; job++) {
        scope.fork(() -> solver.solve(b).report().iterations());
      }
      scope.join();
    }
    return (System.nanoTime() - start) * 1e-9;
  }

  private double oneByOne(SparseSolver solver, double[] b) {
    long start = System.nanoTime();
    for (int job = 0; job < jobs; job++) {
      solver.solve(b);
    }
    return (System.nanoTime() - start) * 1e-9;
  }

  private void print(String line) {
    PrintWriter out = Objects.requireNonNull(spec).commandLine().getOut();
    out.println(line);
    out.flush();
  }
}
