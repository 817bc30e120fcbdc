package io.fairlead.cli;

import io.fairlead.solver.BadInputException;
import io.fairlead.solver.CsrMatrix;
import io.fairlead.solver.DenseColumns;
import io.fairlead.solver.MatrixFile;
import io.fairlead.solver.MatrixMarket;
import io.fairlead.solver.Poisson;
import io.fairlead.solver.ReadProgress;
import io.fairlead.solver.SpdCheck;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Locale;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * What is to be solved, read and checked.
 *
 * @param x0 as many columns as {@code b}, or null for zero
 */
record SolveInput(CsrMatrix matrix, DenseColumns b, @Nullable DenseColumns x0) {

  /**
   * Reads all that the request names. Blocks.
   *
   * @throws BadInputException naming file, line and what was expected
   */
  static SolveInput read(SolveRequest request, Progress progress) {
    CsrMatrix matrix = matrix(request, progress);
    DenseColumns b = rightHandSides(request.rhs(), matrix, progress);
    return new SolveInput(matrix, b, start(request.x0(), matrix, b.count(), progress));
  }

  /** Numbers that differ, but for a rare chance, if anything in the input does. */
  long[] prints() {
    return new long[] {
      matrix.rows(),
      matrix.entries(),
      Arrays.hashCode(matrix.rowPtr()),
      Arrays.hashCode(matrix.colIdx()),
      Arrays.hashCode(matrix.values()),
      print(b),
      x0 == null ? 0 : print(x0)
    };
  }

  private static long print(DenseColumns columns) {
    return columns.columns().stream()
        .mapToLong(Arrays::hashCode)
        .reduce(columns.count(), (all, each) -> 31 * all + each);
  }

  double @Nullable [] startOf(int column) {
    return x0 == null ? null : x0.column(x0.count() == 1 ? 0 : column);
  }

  private static CsrMatrix matrix(SolveRequest request, Progress progress) {
    if (request.poisson() != null) {
      return Poisson.grid3d(request.poisson());
    }
    Path file = Objects.requireNonNull(request.file());
    MatrixFile read = MatrixMarket.readMatrix(file, shown(file, progress));
    SpdCheck.require(read);
    return read.matrix();
  }

  private static DenseColumns rightHandSides(
      @Nullable Path file, CsrMatrix matrix, Progress progress) {
    if (file == null) {
      return timesOnes(matrix);
    }
    return MatrixMarket.readColumns(
        file, matrix.rows(), "the right-hand side", shown(file, progress));
  }

  private static DenseColumns timesOnes(CsrMatrix matrix) {
    double[] ones = new double[matrix.cols()];
    Arrays.fill(ones, 1.0);
    double[] b = new double[matrix.rows()];
    matrix.multiply(ones, b);
    return new DenseColumns(matrix.rows(), b);
  }

  private static @Nullable DenseColumns start(
      @Nullable Path file, CsrMatrix matrix, int columns, Progress progress) {
    if (file == null) {
      return null;
    }
    DenseColumns x0 =
        MatrixMarket.readColumns(file, matrix.rows(), "the initial guess", shown(file, progress));
    if (x0.count() != 1 && x0.count() != columns) {
      throw new BadInputException(
          file,
          BadInputException.NO_LINE,
          "the initial guess has "
              + x0.count()
              + " columns; expected "
              + (columns == 1 ? "1" : "1, or as many as the right-hand side has, " + columns));
    }
    return x0;
  }

  private static ReadProgress shown(Path file, Progress progress) {
    return (bytes, bytesTotal, entries, entriesTotal) ->
        progress.update(
            () ->
                String.format(
                    Locale.ROOT,
                    "reading %s: %,d of %,d entries",
                    file.getFileName(),
                    entries,
                    entriesTotal));
  }
}
