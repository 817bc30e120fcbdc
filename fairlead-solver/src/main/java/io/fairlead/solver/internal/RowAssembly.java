package io.fairlead.solver.internal;

import io.fairlead.solver.CsrMatrix;
import io.fairlead.solver.MatrixTooLargeException;
import java.util.ArrayList;
import java.util.List;

/**
 * Makes a sparse matrix from rows that are computed independently, in one pass: each piece of the
 * range fills its own buffer, then the buffers are laid end to end.
 */
final class RowAssembly {
  /** Fewer rows than this are not worth a thread. */
  private static final int MIN_CHUNK = 2048;

  /** Computes the rows of one piece, calling {@code endRow} for each and storing its count. */
  @FunctionalInterface
  interface Rows {
    void fill(RowBuffer out, int[] counts, int from, int to);
  }

  private record Piece(int from, RowBuffer buffer) {}

  private RowAssembly() {}

  /**
   * Assembles the matrix.
   *
   * @param entriesPerRow a first guess of the entries in a row
   */
  static CsrMatrix assemble(
      int rows, int cols, double entriesPerRow, Parallel parallel, Rows body) {
    int[] ptr = new int[rows + 1];
    List<Piece> pieces = new ArrayList<>();
    parallel.forRange(
        rows,
        MIN_CHUNK,
        (from, to) -> {
          RowBuffer buffer =
              new RowBuffer(cols, (int) Math.min(1 << 28, (to - from) * entriesPerRow));
          body.fill(buffer, ptr, from, to);
          synchronized (pieces) {
            pieces.add(new Piece(from, buffer));
          }
        });
    prefixSum(ptr);
    return join(rows, cols, ptr, pieces, parallel);
  }

  /** Turns the counts, kept one place late, into starts. */
  static void prefixSum(int[] ptr) {
    long total = 0;
    for (int i = 1; i < ptr.length; i++) {
      total += ptr[i];
      if (total > Integer.MAX_VALUE - 8) {
        throw tooLarge();
      }
      ptr[i] = (int) total;
    }
  }

  static MatrixTooLargeException tooLarge() {
    return new MatrixTooLargeException(
        "a matrix of the coarse levels has more than 2^31 entries: the problem is too large for"
            + " multigrid in one process; take another preconditioner, or a smaller problem");
  }

  private static CsrMatrix join(
      int rows, int cols, int[] ptr, List<Piece> pieces, Parallel parallel) {
    int entries = ptr[rows];
    if (pieces.size() == 1) {
      RowBuffer only = pieces.get(0).buffer();
      return new CsrMatrix(
          rows,
          cols,
          ptr,
          RowBuffer.trim(only.columns(), entries),
          RowBuffer.trim(only.values(), entries));
    }
    int[] idx = new int[entries];
    double[] val = new double[entries];
    parallel.forRange(
        pieces.size(),
        1,
        (from, to) -> {
          for (int p = from; p < to; p++) {
            copy(pieces.get(p), ptr, idx, val);
          }
        });
    return new CsrMatrix(rows, cols, ptr, idx, val);
  }

  private static void copy(Piece piece, int[] ptr, int[] idx, double[] val) {
    RowBuffer buffer = piece.buffer();
    System.arraycopy(buffer.columns(), 0, idx, ptr[piece.from()], buffer.length());
    System.arraycopy(buffer.values(), 0, val, ptr[piece.from()], buffer.length());
  }
}
