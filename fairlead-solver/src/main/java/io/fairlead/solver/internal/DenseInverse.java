package io.fairlead.solver.internal;

import io.fairlead.solver.CsrMatrix;
import io.fairlead.solver.NotPositiveDefiniteException;

/**
 * The inverse of the coarsest matrix, kept dense: applying it is one matrix-vector product, which
 * is faster on a device than two triangular solves.
 *
 * @param size rows and columns
 * @param entries the inverse by rows; symmetric bit for bit
 */
@SuppressWarnings("ArrayRecordComponent") // shared, never compared
public record DenseInverse(int size, double[] entries) {
  private static final int MIN_CHUNK = 128;

  /** A pivot below this part of the largest diagonal entry, times the size, counts as zero. */
  private static final double SINGULAR = 0x1.0p-52;

  /**
   * Inverts by sweeping (Gauss-Jordan on a symmetric matrix, lower triangle only). The pivots are
   * those of the Cholesky factorisation, so a pivot that is not positive proves the matrix not
   * positive definite.
   *
   * @throws NotPositiveDefiniteException if a pivot is not positive, or zero to rounding
   */
  static DenseInverse of(CsrMatrix a, Parallel parallel) {
    int n = a.rows();
    double[][] rows = lowerTriangle(a);
    double least = SINGULAR * n * largestDiagonal(rows);
    double[] pivotColumn = new double[n];
    for (int k = 0; k < n; k++) {
      double pivot = rows[k][k];
      if (!(pivot > least)) {
        throw notPositive(k, n, pivot);
      }
      sweep(rows, k, pivot, pivotColumn, parallel);
    }
    return new DenseInverse(n, negatedFull(rows));
  }

  private static double[][] lowerTriangle(CsrMatrix a) {
    int n = a.rows();
    double[][] rows = new double[n][];
    for (int i = 0; i < n; i++) {
      rows[i] = new double[i + 1];
      for (int k = a.rowPtr()[i]; k < a.rowPtr()[i + 1]; k++) {
        if (a.colIdx()[k] <= i) {
          rows[i][a.colIdx()[k]] = a.values()[k];
        }
      }
    }
    return rows;
  }

  private static double largestDiagonal(double[][] rows) {
    double most = 0.0;
    for (int i = 0; i < rows.length; i++) {
      most = Math.max(most, rows[i][i]);
    }
    return most;
  }

  private static void sweep(
      double[][] rows, int k, double pivot, double[] column, Parallel parallel) {
    int n = rows.length;
    System.arraycopy(rows[k], 0, column, 0, k);
    for (int i = k; i < n; i++) {
      column[i] = rows[i][k];
    }
    double inverse = 1.0 / pivot;
    parallel.forRange(
        n,
        MIN_CHUNK,
        (from, to) -> {
          for (int i = from; i < to; i++) {
            subtract(rows[i], column, column[i] * inverse);
          }
        });
    for (int j = 0; j < k; j++) {
      rows[k][j] = column[j] * inverse;
    }
    for (int i = k + 1; i < n; i++) {
      rows[i][k] = column[i] * inverse;
    }
    rows[k][k] = -inverse;
  }

  private static void subtract(double[] row, double[] column, double factor) {
    for (int j = 0; j < row.length; j++) {
      row[j] -= factor * column[j];
    }
  }

  private static double[] negatedFull(double[][] rows) {
    int n = rows.length;
    double[] full = new double[Math.multiplyExact(n, n)];
    for (int i = 0; i < n; i++) {
      for (int j = 0; j <= i; j++) {
        full[i * n + j] = -rows[i][j];
        full[j * n + i] = -rows[i][j];
      }
    }
    return full;
  }

  private static NotPositiveDefiniteException notPositive(int k, int n, double pivot) {
    return new NotPositiveDefiniteException(
        "the matrix is not positive definite: pivot "
            + (k + 1)
            + " of "
            + n
            + " on the coarsest level is "
            + pivot
            + "; expected all pivots to be positive. Conjugate gradients need a symmetric positive"
            + " definite matrix: check signs, and boundary conditions that leave a null space");
  }

  /** Sets {@code y = A⁻¹ x}. */
  void multiply(double[] x, double[] y) {
    for (int i = 0; i < size; i++) {
      double sum = 0.0;
      for (int j = 0; j < size; j++) {
        sum += entries[i * size + j] * x[j];
      }
      y[i] = sum;
    }
  }
}
