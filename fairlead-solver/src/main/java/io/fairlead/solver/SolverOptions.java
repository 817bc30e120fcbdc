package io.fairlead.solver;

import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * How to solve. Immutable; start from {@link #DEFAULT} and change what differs:
 *
 * <pre>{@code
 * SolverOptions options = SolverOptions.DEFAULT.withTolerance(1e-10).withRanks(2);
 * }</pre>
 *
 * @param tolerance the solve has converged when {@code |b − A x| ≤ tolerance · |b|}
 * @param maxIterations where it gives up
 * @param preconditioner what speeds it up
 * @param nearNullSpace vectors, each as long as the matrix has rows, that coarse levels must
 *     represent (rigid body modes in elasticity); null for the constant vector
 * @param rowsPerPoint unknowns of one point of the problem, which lie next to each other and are
 *     aggregated together; 1 for a scalar problem
 * @param ranks how many ranks share the rows
 * @param listener hears progress of the setup, and of those solves that name no listener
 */
@SuppressWarnings("ArrayRecordComponent")
public record SolverOptions(
    double tolerance,
    int maxIterations,
    Preconditioner preconditioner,
    double @Nullable [][] nearNullSpace,
    int rowsPerPoint,
    int ranks,
    SolveListener listener) {

  /** To 1e-8, with multigrid, on one rank. */
  public static final SolverOptions DEFAULT =
      new SolverOptions(1e-8, 10_000, Preconditioner.AMG, null, 1, 1, SolveListener.SILENT);

  /**
   * Checks the values.
   *
   * @throws IllegalArgumentException saying which is out of range
   */
  public SolverOptions {
    Objects.requireNonNull(preconditioner, "preconditioner");
    Objects.requireNonNull(listener, "listener");
    require(tolerance > 0 && tolerance < 1, "tolerance", tolerance, "between 0 and 1");
    require(maxIterations >= 0, "maxIterations", maxIterations, "0 or more");
    require(rowsPerPoint >= 1, "rowsPerPoint", rowsPerPoint, "1 or more");
    require(ranks >= 1 && ranks <= MAX_RANKS, "ranks", ranks, "1 to " + MAX_RANKS);
  }

  /** Each rank is a thread and a stream; more ranks than this in one process is a mistake. */
  private static final int MAX_RANKS = 1024;

  private static void require(boolean holds, String what, Number value, String expected) {
    if (!holds) {
      throw new IllegalArgumentException(what + " is " + value + "; expected " + expected);
    }
  }

  /** These options with another tolerance. */
  public SolverOptions withTolerance(double value) {
    return new SolverOptions(
        value, maxIterations, preconditioner, nearNullSpace, rowsPerPoint, ranks, listener);
  }

  /** These options with another limit of iterations. */
  public SolverOptions withMaxIterations(int value) {
    return new SolverOptions(
        tolerance, value, preconditioner, nearNullSpace, rowsPerPoint, ranks, listener);
  }

  /** These options with another preconditioner. */
  public SolverOptions withPreconditioner(Preconditioner value) {
    return new SolverOptions(
        tolerance, maxIterations, value, nearNullSpace, rowsPerPoint, ranks, listener);
  }

  /**
   * These options with a near-null space, for points of so many rows. The arrays are not copied.
   */
  public SolverOptions withNearNullSpace(double @Nullable [][] vectors, int rowsOfPoint) {
    return new SolverOptions(
        tolerance, maxIterations, preconditioner, vectors, rowsOfPoint, ranks, listener);
  }

  /** These options on another number of ranks. */
  public SolverOptions withRanks(int value) {
    return new SolverOptions(
        tolerance, maxIterations, preconditioner, nearNullSpace, rowsPerPoint, value, listener);
  }

  /** These options with a listener. */
  public SolverOptions withListener(SolveListener value) {
    return new SolverOptions(
        tolerance, maxIterations, preconditioner, nearNullSpace, rowsPerPoint, ranks, value);
  }
}
