package io.fairlead.solver.internal.device;

import io.fairlead.device.spi.KernelArguments;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.DoubleBuffer;

/**
 * The products of a block of sparse rows with a vector, for a kernel whose first arguments are the
 * {@link SlicedRows}' slicePtr, colIdx, values and order, the number of rows, and x.
 *
 * <p>A block's pointers, columns and values are copied into small arrays first. They are read once,
 * in order, so the copy runs at the speed of memory; what remains is a loop over arrays with one
 * checked read of x for each entry, which is as fast as a checked loop in Java gets.
 *
 * <p>One instance serves one call of a kernel.
 */
final class RowSums {
  /** The arguments that it takes. */
  static final int ARGUMENTS = 6;

  static final int ROWS = SlicedRows.BLOCK;

  /** Entries that are copied at once: a block of 16 in a row; few enough for the nearest cache. */
  static final int ENTRIES = 16 * ROWS;

  private static final int SLICE = SlicedRows.SLICE;
  private static final int SLICES = SlicedRows.SLICES;
  private static final ValueLayout.OfInt INT = ValueLayout.JAVA_INT_UNALIGNED;
  private static final ValueLayout.OfDouble DOUBLE = ValueLayout.JAVA_DOUBLE_UNALIGNED;
  private static final ValueLayout.OfByte BYTE = ValueLayout.JAVA_BYTE;

  /** The products of the block that was computed last. */
  final double[] sums = new double[ROWS];

  private final MemorySegment slicePtr;
  private final MemorySegment colIdx;
  private final MemorySegment values;
  private final MemorySegment rowOrder;
  private final int rows;
  private final DoubleBuffer x;
  private final int[] ptr = new int[SLICES + 1];
  private final byte[] order = new byte[ROWS];
  private final int[] col = new int[ENTRIES];
  private final double[] val = new double[ENTRIES];

  RowSums(KernelArguments arguments) {
    slicePtr = arguments.buffer(0);
    colIdx = arguments.buffer(1);
    values = arguments.buffer(2);
    rowOrder = arguments.buffer(3);
    rows = arguments.i32(4);
    x = JavaKernels.doubles(arguments, 5);
  }

  /**
   * Computes one block.
   *
   * @return how many rows it has
   */
  int compute(int block) {
    MemorySegment.copy(slicePtr, INT, 4L * SLICES * block, ptr, 0, SLICES + 1);
    MemorySegment.copy(rowOrder, BYTE, (long) ROWS * block, order, 0, ROWS);
    for (int from = 0; from < SLICES; ) {
      int end = lastThatFits(from);
      if (end == from) {
        longSlice(from);
        end++;
      } else {
        load(ptr[from], ptr[end] - ptr[from]);
        multiply(ptr, from, end, order, col, val, x, sums);
      }
      from = end;
    }
    return Math.min(ROWS, rows - block * ROWS);
  }

  private int lastThatFits(int from) {
    int end = from;
    while (end < SLICES && ptr[end + 1] - ptr[from] <= ENTRIES) {
      end++;
    }
    return end;
  }

  private void load(int from, int entries) {
    MemorySegment.copy(colIdx, INT, 4L * from, col, 0, entries);
    MemorySegment.copy(values, DOUBLE, 8L * from, val, 0, entries);
  }

  private static void multiply(
      int[] ptr,
      int from,
      int end,
      byte[] order,
      int[] col,
      double[] val,
      DoubleBuffer x,
      double[] sums) {
    int start = ptr[from];
    int k = 0;
    for (int slice = from; slice < end; slice++) {
      int last = ptr[slice + 1] - start;
      double s0 = 0.0;
      double s1 = 0.0;
      double s2 = 0.0;
      double s3 = 0.0;
      for (; k < last; k += SLICE) {
        s0 += val[k] * x.get(col[k]);
        s1 += val[k + 1] * x.get(col[k + 1]);
        s2 += val[k + 2] * x.get(col[k + 2]);
        s3 += val[k + 3] * x.get(col[k + 3]);
      }
      int place = slice * SLICE;
      sums[order[place]] = s0;
      sums[order[place + 1]] = s1;
      sums[order[place + 2]] = s2;
      sums[order[place + 3]] = s3;
    }
  }

  /** A slice of more entries than are copied at once. */
  private void longSlice(int slice) {
    double[] sum = new double[SLICE];
    for (int at = ptr[slice]; at < ptr[slice + 1]; at += ENTRIES) {
      int entries = Math.min(ENTRIES, ptr[slice + 1] - at);
      load(at, entries);
      for (int k = 0; k < entries; k++) {
        sum[k % SLICE] += val[k] * x.get(col[k]);
      }
    }
    for (int r = 0; r < SLICE; r++) {
      sums[order[slice * SLICE + r]] = sum[r];
    }
  }
}
