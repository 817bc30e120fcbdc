package io.fairlead.solver.internal;

import java.util.Arrays;

/**
 * Gathers sparse rows one after the other: terms are added in any order, equal columns are summed
 * in the order in which they come.
 *
 * <p>{@code mark[c]} is where column {@code c} last went. A position before the current row's start
 * is left over from an earlier row, so nothing is cleared between rows.
 */
final class RowBuffer {
  /** Rows up to this length are sorted by insertion; longer ones by packed keys. */
  private static final int INSERTION_MAX = 40;

  private final int[] mark;
  private int[] idx;
  private double[] val;
  private int rowStart;
  private int length;

  RowBuffer(int cols, int capacity) {
    mark = new int[cols];
    Arrays.fill(mark, -1);
    idx = new int[Math.max(16, capacity)];
    val = new double[Math.max(16, capacity)];
  }

  void add(int col, double term) {
    int at = mark[col];
    if (at >= rowStart) {
      val[at] += term;
    } else {
      append(col, term);
    }
  }

  private void append(int col, double term) {
    if (length == idx.length) {
      grow();
    }
    mark[col] = length;
    idx[length] = col;
    val[length++] = term;
  }

  private void grow() {
    long wanted = length + (length >> 1) + 16L;
    int capacity = (int) Math.min(wanted, Integer.MAX_VALUE - 8);
    if (capacity == length) {
      throw RowAssembly.tooLarge();
    }
    idx = Arrays.copyOf(idx, capacity);
    val = Arrays.copyOf(val, capacity);
  }

  /** Ends the row, leaving its columns in order of arrival. */
  int endRow() {
    int count = length - rowStart;
    rowStart = length;
    return count;
  }

  /** Ends the row with its columns ascending. */
  int endSortedRow() {
    if (length - rowStart <= INSERTION_MAX) {
      sortByInsertion();
    } else {
      sortByKeys();
    }
    return endRow();
  }

  private void sortByInsertion() {
    for (int i = rowStart + 1; i < length; i++) {
      int col = idx[i];
      double value = val[i];
      int k = i - 1;
      while (k >= rowStart && idx[k] > col) {
        idx[k + 1] = idx[k];
        val[k + 1] = val[k];
        k--;
      }
      idx[k + 1] = col;
      val[k + 1] = value;
    }
  }

  private void sortByKeys() {
    sortRow(idx, val, rowStart, length);
  }

  /**
   * Sorts the entries from {@code from} to {@code to} by column; equal columns keep their order.
   */
  static void sortRow(int[] idx, double[] val, int from, int to) {
    int count = to - from;
    long[] keys = new long[count];
    double[] old = Arrays.copyOfRange(val, from, to);
    for (int k = 0; k < count; k++) {
      keys[k] = (long) idx[from + k] << 32 | k;
    }
    Arrays.sort(keys);
    for (int k = 0; k < count; k++) {
      idx[from + k] = (int) (keys[k] >> 32);
      val[from + k] = old[(int) keys[k]];
    }
  }

  int length() {
    return length;
  }

  int[] columns() {
    return idx;
  }

  double[] values() {
    return val;
  }

  /** Copies only where a quarter or more would lie idle: fresh memory costs more than slack. */
  static int[] trim(int[] array, int length) {
    return array.length - length <= array.length >> 2 ? array : Arrays.copyOf(array, length);
  }

  static double[] trim(double[] array, int length) {
    return array.length - length <= array.length >> 2 ? array : Arrays.copyOf(array, length);
  }
}
