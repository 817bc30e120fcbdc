package io.fairlead.solver.internal.device;

import io.fairlead.solver.CsrMatrix;
import io.fairlead.solver.internal.DenseInverse;
import io.fairlead.solver.internal.Hierarchy;
import io.fairlead.solver.internal.Level;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * What a solve needs of the host before it is cut into ranks: the levels, finest first, of any
 * preconditioner. Immutable.
 *
 * @param inverse the last level's inverse; null if its smoother stands for the solve
 * @param multigrid whether the preconditioner is a V-cycle, or done after the first smoothing
 */
public record Levels(List<OfLevel> levels, @Nullable DenseInverse inverse, boolean multigrid) {
  /** Copies the list. */
  public Levels {
    levels = List.copyOf(levels);
  }

  /**
   * One level.
   *
   * @param a null where a user's operator stands for the finest level's matrix
   */
  @SuppressWarnings("ArrayRecordComponent")
  public record OfLevel(
      @Nullable CsrMatrix a,
      double[] inverseDiagonal,
      Smoother smoother,
      Level.@Nullable Transfer coarser) {
    /** Its rows. */
    public int rows() {
      return inverseDiagonal.length;
    }

    /** Its stored entries, of the matrix that is known. */
    public long entries() {
      return a == null ? 0 : a.entries();
    }
  }

  /** Multigrid. */
  public static Levels of(Hierarchy hierarchy) {
    List<OfLevel> levels = new ArrayList<>();
    for (Level level : hierarchy.levels()) {
      Smoother smoother = Smoother.of(hierarchy.chebyshev(), level.lambdaMax());
      levels.add(new OfLevel(level.a(), level.inverseDiagonal(), smoother, level.coarser()));
    }
    return new Levels(levels, hierarchy.coarse(), true);
  }

  /** Division by the diagonal. */
  public static Levels jacobi(@Nullable CsrMatrix a, double[] inverseDiagonal) {
    OfLevel only = new OfLevel(a, inverseDiagonal, Smoother.JACOBI, null);
    return new Levels(List.of(only), null, false);
  }

  /** No preconditioner: division by ones. */
  public static Levels none(@Nullable CsrMatrix a, int rows) {
    double[] ones = new double[rows];
    Arrays.fill(ones, 1.0);
    return jacobi(a, ones);
  }

  /** The same preconditioner for an operator that stands for the finest level's matrix. */
  public Levels withoutFinestMatrix() {
    if (multigrid) {
      return this; // Its smoothing and its residuals need the matrix.
    }
    OfLevel only = levels.getFirst();
    return jacobi(null, only.inverseDiagonal());
  }
}
