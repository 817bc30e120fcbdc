package io.fairlead.solver;

import io.fairlead.comm.Comm;
import io.fairlead.runtime.Fairlead;
import io.fairlead.solver.internal.device.RankParts;
import io.fairlead.task.WaitMode;
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

  private final WaitMode mode;

  private VCycleBenchmark(SparseSolver solver, WaitMode mode) {
    this.solver = solver;
    this.mode = mode;
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
    SparseSolver solver = SparseSolver.setup(fairlead, matrix, options);
    return new VCycleBenchmark(solver, fairlead.config().waitMode());
  }

  /**
   * As the other, on ranks that are processes: every rank of {@code world} calls it, and runs the
   * same cycles. What a run says of all ranks is then of this one.
   */
  public static VCycleBenchmark setup(Fairlead fairlead, Comm world, CsrMatrix matrix) {
    SparseSolver solver = SparseSolver.setup(fairlead, world, matrix, SolverOptions.DEFAULT);
    return new VCycleBenchmark(solver, fairlead.config().waitMode());
  }

  /** As {@link #setup(Fairlead, CsrMatrix, int)}, on each of some numbers of ranks. */
  public static List<VCycleBenchmark> setup(
      Fairlead fairlead, CsrMatrix matrix, List<Integer> ranks) {
    return SparseSolver.setup(fairlead, matrix, ranks).stream()
        .map(solver -> new VCycleBenchmark(solver, fairlead.config().waitMode()))
        .toList();
  }

  /** Runs cycles from zero for a right-hand side of ones. Waits for them. */
  public Result run(int cycles) {
    return run(cycles, mode);
  }

  /** As {@link #run(int)}, with ranks that wait as {@code mode} says, whatever is configured. */
  public Result run(int cycles, WaitMode mode) {
    return solver.cycles(cycles, mode);
  }

  static Result result(List<RankParts.Done<RankParts.Cycles>> done) {
    RankParts.Done<RankParts.Cycles> first = done.getFirst();
    return new Result(
        done.stream().mapToLong(each -> each.result().nanos()).max().orElse(0) * NANOS,
        first.result().relativeResiduals(),
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
