package io.fairlead.solver;

import java.nio.file.Path;

/**
 * A matrix as it was read: all entries, both triangles where the file stores one.
 *
 * @param file where it was read
 * @param field what the file says its values are
 * @param symmetry what the file says about the other triangle
 * @param stored the entries that the file lists
 * @param matrix the whole matrix
 */
public record MatrixFile(Path file, Field field, Symmetry symmetry, long stored, CsrMatrix matrix) {

  /** What the values are. */
  public enum Field {
    /** Real numbers. */
    REAL,
    /** Whole numbers, kept as doubles. */
    INTEGER,
    /** No values: each entry counts as 1. */
    PATTERN
  }

  /** What the file says about the other triangle. */
  public enum Symmetry {
    /** Nothing: all entries are listed. */
    GENERAL,
    /** The lower triangle is listed, the upper is the same. */
    SYMMETRIC,
    /** The strictly lower triangle is listed, the upper is its negative. */
    SKEW_SYMMETRIC
  }
}
