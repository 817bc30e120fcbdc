package io.fairlead.solver.internal;

import io.fairlead.solver.CsrMatrix;
import org.jspecify.annotations.Nullable;

/**
 * One level of the hierarchy: its operator, what smooths on it, and the way to the next.
 *
 * @param a the operator
 * @param inverseDiagonal {@code D⁻¹}
 * @param lambdaMax an upper estimate of the largest eigenvalue of {@code D⁻¹A}, safety included
 * @param coarser the way to the next level; null on the coarsest
 */
@SuppressWarnings("ArrayRecordComponent") // shared, never compared
public record Level(
    CsrMatrix a, double[] inverseDiagonal, double lambdaMax, @Nullable Transfer coarser) {

  /**
   * Between a level and the next.
   *
   * @param p the prolongator, from the coarser level's rows to this level's
   * @param r its transpose
   * @param rootRow for each coarser row, the row of this level that roots its aggregate: ascending,
   *     so that a block of rows here induces a block there
   */
  @SuppressWarnings("ArrayRecordComponent") // shared, never compared
  public record Transfer(CsrMatrix p, CsrMatrix r, int[] rootRow) {}

  /** Returns the number of rows. */
  public int rows() {
    return a.rows();
  }
}
