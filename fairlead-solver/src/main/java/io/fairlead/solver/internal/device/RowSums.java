package io.fairlead.solver.internal.device;

import io.fairlead.device.spi.KernelArguments;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.DoubleBuffer;

/**
 * The products of a block of sparse rows with a vector, for a kernel whose first arguments are
 * rowPtr, colIdx, values and x.
 *
 * <p>A block's pointers, columns and values are copied into small arrays first. They are read once,
 * in order, so the copy runs at the speed of memory; what remains is a loop over arrays with one
 * checked read of x for each entry, which is as fast as a checked loop in Java gets.
 *
 * <p>One instance serves one call of a kernel.
 */
final class RowSums {
  /** Rows in a block: enough to pay for the copies, few enough to stay in the nearest cache. */
  static final int ROWS = 64;

  /** Entries in a block: 16 for each row; longer rows make shorter blocks. */
  static final int ENTRIES = 16 * ROWS;

  private static final ValueLayout.OfInt INT = ValueLayout.JAVA_INT_UNALIGNED;
  private static final ValueLayout.OfDouble DOUBLE = ValueLayout.JAVA_DOUBLE_UNALIGNED;

  /** The products of the block that was computed last. */
  final double[] sums = new double[ROWS];

  private final MemorySegment rowPtr;
  private final MemorySegment colIdx;
  private final MemorySegment values;
  private final DoubleBuffer x;
  private final int[] ptr = new int[ROWS + 1];
  private final int[] col = new int[ENTRIES];
  private final double[] val = new double[ENTRIES];

  RowSums(KernelArguments arguments) {
    rowPtr = arguments.buffer(0);
    colIdx = arguments.buffer(1);
    values = arguments.buffer(2);
    x = JavaKernels.doubles(arguments, 3);
  }

  /**
   * Computes a block that begins at row {@code first} and ends before {@code last}.
   *
   * @return how many rows it has, at least 1
   */
  int compute(int first, int last) {
    int count = Math.min(ROWS, last - first);
    MemorySegment.copy(rowPtr, INT, 4L * first, ptr, 0, count + 1);
    while (count > 0 && ptr[count] - ptr[0] > ENTRIES) {
      count--;
    }
    if (count == 0) {
      sums[0] = longRow(ptr[0], ptr[1]);
      return 1;
    }
    load(ptr[0], ptr[count] - ptr[0]);
    multiply(ptr, col, val, x, sums, count);
    return count;
  }

  private void load(int from, int entries) {
    MemorySegment.copy(colIdx, INT, 4L * from, col, 0, entries);
    MemorySegment.copy(values, DOUBLE, 8L * from, val, 0, entries);
  }

  private static void multiply(
      int[] ptr, int[] col, double[] val, DoubleBuffer x, double[] sums, int count) {
    int from = ptr[0];
    int k = 0;
    for (int i = 0; i < count; i++) {
      int end = ptr[i + 1] - from;
      double sum = 0.0;
      for (; k < end; k++) {
        sum += val[k] * x.get(col[k]);
      }
      sums[i] = sum;
    }
  }

  private double longRow(int from, int end) {
    double sum = 0.0;
    for (int at = from; at < end; at += ENTRIES) {
      int entries = Math.min(ENTRIES, end - at);
      load(at, entries);
      for (int k = 0; k < entries; k++) {
        sum += val[k] * x.get(col[k]);
      }
    }
    return sum;
  }
}
