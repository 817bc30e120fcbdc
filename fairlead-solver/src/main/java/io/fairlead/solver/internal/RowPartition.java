package io.fairlead.solver.internal;

import io.fairlead.solver.CsrMatrix;
import java.util.Arrays;

/** Contiguous blocks of rows, one for each rank; a block may be empty. Immutable. */
public final class RowPartition {
  private final int[] starts;

  private RowPartition(int[] starts) {
    this.starts = starts;
  }

  /**
   * Returns blocks that hold about the same number of entries, each row counted as one entry more
   * for its vectors.
   */
  public static RowPartition byEntries(CsrMatrix a, int ranks) {
    int[] starts = new int[requirePositive(ranks) + 1];
    long total = (long) a.entries() + a.rows();
    int row = 0;
    for (int rank = 1; rank < ranks; rank++) {
      long target = total * rank / ranks;
      while (row < a.rows() && (long) a.rowPtr()[row] + row < target) {
        row++;
      }
      starts[rank] = row;
    }
    starts[ranks] = a.rows();
    return new RowPartition(starts);
  }

  private static int requirePositive(int ranks) {
    if (ranks < 1) {
      throw new IllegalArgumentException(ranks + " ranks; expected at least 1");
    }
    return ranks;
  }

  /** Returns the blocks of the coarser level: each coarse row goes where its root row is. */
  public RowPartition coarser(int[] rootRow) {
    int[] coarse = new int[starts.length];
    for (int rank = 0; rank < starts.length; rank++) {
      coarse[rank] = firstAtLeast(rootRow, starts[rank]);
    }
    return new RowPartition(coarse);
  }

  private static int firstAtLeast(int[] ascending, int value) {
    int low = 0;
    int high = ascending.length;
    while (low < high) {
      int middle = (low + high) >>> 1;
      if (ascending[middle] < value) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  /** Returns the number of blocks. */
  public int ranks() {
    return starts.length - 1;
  }

  /** Returns the rows of all blocks. */
  public int rows() {
    return starts[starts.length - 1];
  }

  /** Returns the first row of a rank's block. */
  public int first(int rank) {
    return starts[rank];
  }

  /** Returns the end (exclusive) of a rank's block. */
  public int end(int rank) {
    return starts[rank + 1];
  }

  /** Returns the rows of a rank's block. */
  public int size(int rank) {
    return starts[rank + 1] - starts[rank];
  }

  /** Returns the rank whose block holds the row. */
  public int owner(int row) {
    int low = 0;
    int high = ranks();
    while (high - low > 1) {
      int middle = (low + high) >>> 1;
      if (starts[middle] <= row) {
        low = middle;
      } else {
        high = middle;
      }
    }
    return low;
  }

  @Override
  public String toString() {
    return "RowPartition" + Arrays.toString(starts);
  }
}
