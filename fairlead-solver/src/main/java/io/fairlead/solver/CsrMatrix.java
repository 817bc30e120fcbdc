package io.fairlead.solver;

import java.util.Arrays;
import java.util.Objects;

/**
 * A sparse matrix in compressed rows: the entries of row {@code i} are {@code rowPtr[i]} to {@code
 * rowPtr[i + 1]} (exclusive) of {@code colIdx} and {@code values}.
 *
 * <p>Columns within a row are ascending and appear once in every matrix that this library makes,
 * except in the local part of a distributed matrix, which keeps the order of the global columns so
 * that sums have the same order on any number of ranks.
 *
 * <p>The arrays are shared, not copied: neither side may write to them once the matrix is made.
 * Under that rule any thread may read; nothing here blocks.
 */
public final class CsrMatrix {
  private final int rows;
  private final int cols;
  private final int[] rowPtr;
  private final int[] colIdx;
  private final double[] values;

  /**
   * Wraps the arrays; {@code colIdx} and {@code values} may be longer than the entries.
   *
   * @throws IllegalArgumentException if the row pointers do not start at 0, descend, or exceed the
   *     other arrays, or if a column lies outside the matrix
   */
  public CsrMatrix(int rows, int cols, int[] rowPtr, int[] colIdx, double[] values) {
    this.rows = rows;
    this.cols = cols;
    this.rowPtr = Objects.requireNonNull(rowPtr, "rowPtr");
    this.colIdx = Objects.requireNonNull(colIdx, "colIdx");
    this.values = Objects.requireNonNull(values, "values");
    checkShape();
    checkColumns();
  }

  /** Returns the number of rows. */
  public int rows() {
    return rows;
  }

  /** Returns the number of columns. */
  public int cols() {
    return cols;
  }

  /** Returns the number of stored entries. */
  public int entries() {
    return rowPtr[rows];
  }

  /** Returns the start of each row, and the end of the last: shared, not to be written. */
  public int[] rowPtr() {
    return rowPtr;
  }

  /** Returns the column of each entry: shared, not to be written. */
  public int[] colIdx() {
    return colIdx;
  }

  /** Returns the value of each entry: shared, not to be written. */
  public double[] values() {
    return values;
  }

  /** Returns the entry at {@code (row, col)}, zero where none is stored. */
  public double get(int row, int col) {
    int at = find(row, col);
    return at < 0 ? 0.0 : values[at];
  }

  /** Returns the index of the entry at {@code (row, col)}, or a negative number. */
  public int find(int row, int col) {
    return Arrays.binarySearch(colIdx, rowPtr[row], rowPtr[row + 1], col);
  }

  /** Sets {@code y = A x}; each sum runs in the order of the row's entries. */
  public void multiply(double[] x, double[] y) {
    multiply(x, y, 0, rows);
  }

  /** Sets {@code y[i] = (A x)[i]} for the rows from {@code from} to {@code to} (exclusive). */
  public void multiply(double[] x, double[] y, int from, int to) {
    for (int i = from; i < to; i++) {
      y[i] = rowTimes(i, x);
    }
  }

  private double rowTimes(int row, double[] x) {
    int end = rowPtr[row + 1];
    double sum = 0.0;
    for (int k = rowPtr[row]; k < end; k++) {
      sum += values[k] * x[colIdx[k]];
    }
    return sum;
  }

  /** Returns the diagonal, zero where no entry is stored. */
  public double[] diagonal() {
    double[] diagonal = new double[Math.min(rows, cols)];
    for (int i = 0; i < diagonal.length; i++) {
      diagonal[i] = diagonalOf(i);
    }
    return diagonal;
  }

  private double diagonalOf(int row) {
    int end = rowPtr[row + 1];
    for (int k = rowPtr[row]; k < end; k++) {
      if (colIdx[k] == row) {
        return values[k];
      }
    }
    return 0.0;
  }

  /** Returns the transpose, with ascending columns whatever the order here. */
  public CsrMatrix transpose() {
    int[] ptr = columnStarts();
    int[] idx = new int[entries()];
    double[] val = new double[entries()];
    int[] next = Arrays.copyOf(ptr, cols);
    for (int i = 0; i < rows; i++) {
      int end = rowPtr[i + 1];
      for (int k = rowPtr[i]; k < end; k++) {
        int at = next[colIdx[k]]++;
        idx[at] = i;
        val[at] = values[k];
      }
    }
    return new CsrMatrix(cols, rows, ptr, idx, val);
  }

  private int[] columnStarts() {
    int[] ptr = new int[cols + 1];
    int end = entries();
    for (int k = 0; k < end; k++) {
      ptr[colIdx[k] + 1]++;
    }
    for (int j = 0; j < cols; j++) {
      ptr[j + 1] += ptr[j];
    }
    return ptr;
  }

  private void checkShape() {
    if (rows < 0 || cols < 0 || rowPtr.length < rows + 1L || rowPtr[0] != 0) {
      throw new IllegalArgumentException(
          rows + " rows need rowPtr[0] = 0 and rowPtr.length > rows; it is " + rowPtr.length);
    }
    for (int i = 0; i < rows; i++) {
      if (rowPtr[i + 1] < rowPtr[i]) {
        throw new IllegalArgumentException("rowPtr descends after row " + i);
      }
    }
    if (rowPtr[rows] > colIdx.length || rowPtr[rows] > values.length) {
      throw new IllegalArgumentException(
          "rowPtr promises "
              + rowPtr[rows]
              + " entries, colIdx has "
              + colIdx.length
              + " and values has "
              + values.length);
    }
  }

  private void checkColumns() {
    int end = entries();
    int bad = 0;
    for (int k = 0; k < end; k++) {
      bad |= colIdx[k] | (cols - 1 - colIdx[k]);
    }
    if (bad < 0) {
      throw new IllegalArgumentException("a column index lies outside 0.." + (cols - 1));
    }
  }

  @Override
  public String toString() {
    return "CsrMatrix[" + rows + " x " + cols + ", " + entries() + " entries]";
  }
}
