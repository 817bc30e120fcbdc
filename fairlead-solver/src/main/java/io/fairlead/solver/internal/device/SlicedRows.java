package io.fairlead.solver.internal.device;

import io.fairlead.solver.CsrMatrix;
import io.fairlead.solver.MatrixTooLargeException;
import io.fairlead.solver.internal.Parallel;

/**
 * A sparse matrix as the kernels read it: rows in slices of four, interleaved.
 *
 * <p>In compressed rows the inner loop ends after a number of entries that the processor cannot
 * foresee, and with some seven entries in a row it pays more for that than for the arithmetic. Here
 * four rows run side by side for as long as the longest of them, shorter ones padded with zeros: a
 * quarter of the ends, and four sums that need not wait for each other. So that little is padded,
 * the rows of each block of {@link #BLOCK} are put in order of their length first; a row's number
 * within the block says where its sum belongs. (Sliced ELL with sorting: Kreutzer and others,
 * 2014.)
 *
 * <p>A row's sum still runs in the order of its entries, and zeros do not change it, so results are
 * those of compressed rows bit for bit.
 *
 * @param slicePtr where each slice begins, in entries, and the end of the last
 * @param colIdx the columns: the first entry of each of the four rows, then the second, …
 * @param values the values, likewise
 * @param order for each place of a block, the row of the block that is there
 */
@SuppressWarnings("ArrayRecordComponent")
record SlicedRows(int rows, int[] slicePtr, int[] colIdx, double[] values, byte[] order) {
  /** Rows in a block, which is also the least work of a kernel. */
  static final int BLOCK = 64;

  /** Rows side by side. */
  static final int SLICE = 4;

  static final int SLICES = BLOCK / SLICE;

  /** Blocks in a piece that is worth a thread. */
  private static final int MIN_BLOCKS = 64;

  /** As many as an array holds. */
  private static final int ENTRIES_MAX = Integer.MAX_VALUE - 8;

  static int blocks(int rows) {
    return (rows + BLOCK - 1) / BLOCK;
  }

  static SlicedRows of(CsrMatrix matrix, Parallel parallel) {
    int blocks = blocks(matrix.rows());
    byte[] order = new byte[blocks * BLOCK];
    int[] slicePtr = new int[blocks * SLICES + 1];
    parallel.forRange(
        blocks,
        MIN_BLOCKS,
        (from, to) -> {
          for (int block = from; block < to; block++) {
            sort(matrix, block, order);
            measure(matrix, block, order, slicePtr);
          }
        });
    int entries = addUp(slicePtr);
    SlicedRows sliced =
        new SlicedRows(matrix.rows(), slicePtr, new int[entries], new double[entries], order);
    parallel.forRange(
        blocks,
        MIN_BLOCKS,
        (from, to) -> {
          for (int slice = from * SLICES; slice < to * SLICES; slice++) {
            sliced.fill(matrix, slice);
          }
        });
    return sliced;
  }

  int entries() {
    return slicePtr[slicePtr.length - 1];
  }

  /** Insertion by descending length; rows of one length keep their order. */
  private static void sort(CsrMatrix matrix, int block, byte[] order) {
    int first = block * BLOCK;
    for (int i = 0; i < BLOCK; i++) {
      int length = length(matrix, first + i);
      int at = i;
      while (at > 0 && length(matrix, first + order[first + at - 1]) < length) {
        order[first + at] = order[first + at - 1];
        at--;
      }
      order[first + at] = (byte) i;
    }
  }

  /** The length of a row; the last block is filled up with empty ones. */
  private static int length(CsrMatrix matrix, int row) {
    int[] rowPtr = matrix.rowPtr();
    return row < matrix.rows() ? rowPtr[row + 1] - rowPtr[row] : 0;
  }

  /** Notes the longest row of each slice one place late, to be added up. */
  private static void measure(CsrMatrix matrix, int block, byte[] order, int[] slicePtr) {
    int first = block * BLOCK;
    for (int s = 0; s < SLICES; s++) {
      int longest = length(matrix, first + order[first + s * SLICE]);
      slicePtr[block * SLICES + s + 1] = longest;
    }
  }

  /** Turns the longest row of each slice into where the next slice begins. */
  static int addUp(int[] slicePtr) {
    long end = 0;
    for (int s = 1; s < slicePtr.length; s++) {
      end += (long) slicePtr[s] * SLICE;
      if (end > ENTRIES_MAX) {
        throw new MatrixTooLargeException(
            "a matrix has more than 2^31 entries, padding included, in a rank's part: share it"
                + " among more ranks");
      }
      slicePtr[s] = (int) end;
    }
    return slicePtr[slicePtr.length - 1];
  }

  private void fill(CsrMatrix matrix, int slice) {
    int start = slicePtr[slice];
    int end = slicePtr[slice + 1];
    int firstPlace = slice * SLICE;
    int firstRow = firstPlace / BLOCK * BLOCK;
    for (int r = 0; r < SLICE && start < end; r++) {
      fillRow(matrix, firstRow + order[firstPlace + r], start + r, end);
    }
  }

  /** Padding repeats the row's last column: it is at hand, and times zero it adds nothing. */
  private void fillRow(CsrMatrix matrix, int row, int start, int end) {
    int[] from = matrix.colIdx();
    double[] val = matrix.values();
    int first = row < matrix.rows() ? matrix.rowPtr()[row] : 0;
    int last = first + length(matrix, row);
    int col = 0;
    int at = start;
    for (int k = first; k < last; k++, at += SLICE) {
      col = from[k];
      colIdx[at] = col;
      values[at] = val[k];
    }
    for (; at < end; at += SLICE) {
      colIdx[at] = col;
    }
  }
}
