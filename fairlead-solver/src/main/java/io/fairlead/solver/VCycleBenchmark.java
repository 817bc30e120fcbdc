package io.fairlead.solver;

import io.fairlead.runtime.Fairlead;
import io.fairlead.solver.internal.device.RankParts;
import java.util.List;

/**
 * Multigrid V-cycles as an iteration of their own, {@code x = x + M (b − A x)}: nothing but
 * smoothing, waits and messages. Set up once, run often.
 *
 * <p>Threads: any; runs at the same time disturb each other's times, nothing else.
 */
public final class VCycleBenchmark implements AutoCloseable {
  private static final double NANOS = 1e-9;

  private final SparseSolver solver;

  private VCycleBenchmark(SparseSolver solver) {
    this.solver = solver;
  }

  /**
   * How a run went.
   *
   * @param seconds from the first cycle's start to the last one's residual, the slowest rank's
   * @param relativeResiduals {@code |b − A x| / |b|} after each cycle; on each number of ranks the
   *     same bit for bit in every waiting mode
   * @param waits waits of rank 0 for its device
   * @param waitSeconds the time of these
   * @param messages messages that all ranks sent
   * @param messageWaits waits of rank 0 for messages
   * @param messageSeconds the time of these
   */
  @SuppressWarnings("ArrayRecordComponent")
  public record Result(
      double seconds,
      double[] relativeResiduals,
      long waits,
      double waitSeconds,
      long messages,
      long messageWaits,
      double messageSeconds) {}

  /** Sets up the hierarchy of a matrix on so many ranks; {@link Poisson} generates matrices. */
  public static VCycleBenchmark setup(Fairlead fairlead, CsrMatrix matrix, int ranks) {
    SolverOptions options = SolverOptions.DEFAULT.withRanks(ranks);
    return new VCycleBenchmark(SparseSolver.setup(fairlead, matrix, options));
  }

  /** Runs cycles from zero for a right-hand side of ones. Waits for them. */
  public Result run(int cycles) {
    return solver.cycles(cycles);
  }

  static Result result(List<RankParts.Done<double[]>> done) {
    RankParts.Done<double[]> first = done.getFirst();
    return new Result(
        done.stream().mapToLong(RankParts.Done::nanos).max().orElse(0) * NANOS,
        first.result(),
        first.spent().deviceWaits(),
        first.spent().deviceNanos() * NANOS,
        done.stream().mapToLong(each -> each.spent().messages()).sum(),
        first.spent().messageWaits(),
        first.spent().messageNanos() * NANOS);
  }

  /** Returns what the setup made. */
  public SetupReport setupReport() {
    return solver.setupReport();
  }

  @Override
  public void close() {
    solver.close();
  }
}
