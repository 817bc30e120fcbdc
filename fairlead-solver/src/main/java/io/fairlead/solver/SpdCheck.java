package io.fairlead.solver;

import io.fairlead.solver.internal.EntryLines;
import java.util.Optional;

/**
 * The cheap part of "symmetric positive definite": square, symmetric, and a positive diagonal. The
 * rest shows during setup or the solve, as {@link NotPositiveDefiniteException}.
 *
 * <p>All methods may be called from any thread and only read.
 */
public final class SpdCheck {
  /** Two entries count as equal within this part of the larger one. */
  private static final double RELATIVE = 1e-10;

  /** And within this part of the diagonal entries' geometric mean, below which is rounding. */
  private static final double OF_DIAGONAL = 1e-14;

  private SpdCheck() {}

  /**
   * What is wrong, and where.
   *
   * @param row the row, from 0
   * @param col the column, from 0
   * @param problem what is wrong, with rows and columns counted from 1
   * @param expected what was expected
   */
  public record Finding(int row, int col, String problem, String expected) {
    /** Returns the problem and what was expected, as one sentence. */
    public String message() {
      return problem + "; expected " + expected;
    }
  }

  /**
   * Checks a matrix that was read from a file.
   *
   * @throws BadInputException with the file, and the line of the entry at fault where there is one
   */
  public static void require(MatrixFile matrixFile) {
    if (matrixFile.symmetry() == MatrixFile.Symmetry.SKEW_SYMMETRIC) {
      throw new BadInputException(
          matrixFile.file(),
          1,
          "a skew-symmetric matrix is not positive definite; expected a symmetric one");
    }
    boolean listedOnce = matrixFile.symmetry() == MatrixFile.Symmetry.SYMMETRIC;
    Optional<Finding> finding =
        listedOnce ? findOnDiagonal(matrixFile.matrix()) : find(matrixFile.matrix());
    finding.ifPresent(
        f -> {
          throw EntryLines.badInput(matrixFile, f);
        });
  }

  /** Returns the first thing that is wrong with a matrix of ascending columns. */
  public static Optional<Finding> find(CsrMatrix a) {
    if (a.rows() != a.cols()) {
      return Optional.of(
          new Finding(
              -1, -1, "the matrix is " + a.rows() + " x " + a.cols(), "as many rows as columns"));
    }
    return findOnDiagonal(a).or(() -> findAsymmetry(a));
  }

  private static Optional<Finding> findOnDiagonal(CsrMatrix a) {
    double[] diagonal = a.diagonal();
    for (int i = 0; i < diagonal.length; i++) {
      if (!(diagonal[i] > 0)) {
        return Optional.of(onDiagonal(a, i, diagonal[i]));
      }
    }
    return Optional.empty();
  }

  private static Finding onDiagonal(CsrMatrix a, int i, double value) {
    String problem =
        a.find(i, i) < 0
            ? "row " + (i + 1) + " has no diagonal entry"
            : "diagonal entry (" + (i + 1) + ", " + (i + 1) + ") is " + value;
    return new Finding(i, i, problem, "a positive one, as in every positive definite matrix");
  }

  private static Optional<Finding> findAsymmetry(CsrMatrix a) {
    double[] diagonal = a.diagonal();
    for (int i = 0; i < a.rows(); i++) {
      for (int k = a.rowPtr()[i]; k < a.rowPtr()[i + 1]; k++) {
        int j = a.colIdx()[k];
        double here = a.values()[k];
        double there = a.get(j, i);
        if (!equal(here, there, Math.sqrt(diagonal[i] * diagonal[j]))) {
          return Optional.of(asymmetric(a, i, j, here, there));
        }
      }
    }
    return Optional.empty();
  }

  private static boolean equal(double u, double v, double scale) {
    double largest = Math.max(Math.abs(u), Math.abs(v));
    return Math.abs(u - v) <= RELATIVE * largest + OF_DIAGONAL * scale;
  }

  private static Finding asymmetric(CsrMatrix a, int i, int j, double here, double there) {
    String other = a.find(j, i) < 0 ? "is not there" : "is " + there;
    return new Finding(
        i,
        j,
        "the matrix is not symmetric: entry ("
            + (i + 1)
            + ", "
            + (j + 1)
            + ") is "
            + here
            + " but ("
            + (j + 1)
            + ", "
            + (i + 1)
            + ") "
            + other,
        "both to be equal");
  }
}
