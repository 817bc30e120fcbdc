package io.fairlead.cli.bench;

import io.fairlead.comm.Comm;
import io.fairlead.runtime.Fairlead;
import io.fairlead.solver.CsrMatrix;
import io.fairlead.solver.Poisson;
import io.fairlead.solver.SolverOptions;
import io.fairlead.solver.SparseSolver;
import io.fairlead.solver.VCycleBenchmark;
import java.util.Arrays;

/** A solve and V-cycles on ranks of this process, or on those that a launcher started. */
final class CommVCycles {
  private static final int CYCLES = 20;

  private final CsrMatrix matrix;
  private final int warmUp;
  private final int rounds;

  /**
   * For a generated Poisson problem.
   *
   * @param quick fewer rounds, on a coarser grid
   */
  CommVCycles(boolean quick) {
    this.matrix = Poisson.grid3d(grid(quick));
    this.warmUp = quick ? 1 : 6;
    this.rounds = quick ? 2 : 5;
  }

  /** Points along each side. */
  static int grid(boolean quick) {
    return quick ? 32 : 64;
  }

  /**
   * What was measured.
   *
   * @param seconds of one V-cycle, in each round
   * @param iterations of conjugate gradients
   * @param residual relative, after the last V-cycle
   */
  @SuppressWarnings("ArrayRecordComponent")
  record Figures(double[] seconds, int iterations, double residual) {}

  Figures inOneProcess(Fairlead fairlead, int ranks) {
    SolverOptions options = SolverOptions.DEFAULT.withRanks(ranks);
    try (SparseSolver solver = SparseSolver.setup(fairlead, matrix, options);
        VCycleBenchmark benchmark = VCycleBenchmark.setup(fairlead, matrix, ranks)) {
      return measure(solver, benchmark);
    }
  }

  /** On a rank; all of them do so. */
  Figures onRanks(Fairlead fairlead, Comm comm) {
    try (SparseSolver solver = SparseSolver.setup(fairlead, comm, matrix, SolverOptions.DEFAULT);
        VCycleBenchmark benchmark = VCycleBenchmark.setup(fairlead, comm, matrix)) {
      return measure(solver, benchmark);
    }
  }

  private Figures measure(SparseSolver solver, VCycleBenchmark benchmark) {
    double[] ones = new double[solver.rows()];
    Arrays.fill(ones, 1.0);
    int iterations = solver.solve(ones).report().iterations();
    double[] seconds = new double[rounds];
    double residual = 0;
    for (int round = -warmUp; round < rounds; round++) {
      VCycleBenchmark.Result result = benchmark.run(CYCLES);
      if (round >= 0) {
        seconds[round] = result.seconds() / CYCLES;
        residual = result.relativeResiduals()[CYCLES - 1];
      }
    }
    return new Figures(seconds, iterations, residual);
  }
}
