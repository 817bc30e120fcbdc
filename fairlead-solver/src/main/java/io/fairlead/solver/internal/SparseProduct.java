package io.fairlead.solver.internal;

import io.fairlead.solver.CsrMatrix;

/** Products of sparse matrices, row by row (Gustavson 1978). */
final class SparseProduct {
  private SparseProduct() {}

  /** Returns {@code A B} with ascending columns. */
  static CsrMatrix multiply(CsrMatrix a, CsrMatrix b, Parallel parallel) {
    return RowAssembly.assemble(
        a.rows(),
        b.cols(),
        guess(a, b),
        parallel,
        (out, counts, from, to) -> {
          for (int i = from; i < to; i++) {
            addRowTimes(a, i, b, out);
            counts[i + 1] = out.endSortedRow();
          }
        });
  }

  /** Returns {@code A B}, each row's columns in the order in which the sum meets them. */
  private static CsrMatrix multiplyUnsorted(CsrMatrix a, CsrMatrix b, Parallel parallel) {
    return RowAssembly.assemble(
        a.rows(),
        b.cols(),
        guess(a, b),
        parallel,
        (out, counts, from, to) -> {
          for (int i = from; i < to; i++) {
            addRowTimes(a, i, b, out);
            counts[i + 1] = out.endRow();
          }
        });
  }

  /**
   * Returns the Galerkin product {@code R A P}. The inner product is only passed through once, so
   * its rows are left unsorted.
   */
  static CsrMatrix galerkin(CsrMatrix r, CsrMatrix a, CsrMatrix p, Parallel parallel) {
    return multiply(r, multiplyUnsorted(a, p, parallel), parallel);
  }

  private static double guess(CsrMatrix a, CsrMatrix b) {
    double perRow = (double) a.entries() / Math.max(1, a.rows());
    double other = (double) b.entries() / Math.max(1, b.rows());
    return 1.2 * Math.max(perRow, other);
  }

  private static void addRowTimes(CsrMatrix a, int row, CsrMatrix b, RowBuffer out) {
    int[] idx = a.colIdx();
    double[] val = a.values();
    int end = a.rowPtr()[row + 1];
    for (int k = a.rowPtr()[row]; k < end; k++) {
      addScaledRow(b, idx[k], val[k], out);
    }
  }

  private static void addScaledRow(CsrMatrix b, int row, double factor, RowBuffer out) {
    int[] idx = b.colIdx();
    double[] val = b.values();
    int end = b.rowPtr()[row + 1];
    for (int k = b.rowPtr()[row]; k < end; k++) {
      out.add(idx[k], factor * val[k]);
    }
  }
}
