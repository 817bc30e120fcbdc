package io.fairlead.solver;

import java.util.List;

/**
 * A few dense vectors of one length: right-hand sides, initial guesses, solutions.
 *
 * <p>The arrays are shared, not copied; whoever holds them decides who may write.
 */
public final class DenseColumns {
  private final int rows;
  private final double[][] columns;

  /**
   * Wraps the columns.
   *
   * @throws IllegalArgumentException if a column does not have {@code rows} entries
   */
  public DenseColumns(int rows, double[]... columns) {
    this.rows = rows;
    this.columns = columns.clone();
    for (double[] column : columns) {
      if (column.length != rows) {
        throw new IllegalArgumentException(
            "a column has " + column.length + " entries, the others " + rows);
      }
    }
  }

  /** Returns the length of each column. */
  public int rows() {
    return rows;
  }

  /** Returns the number of columns. */
  public int count() {
    return columns.length;
  }

  /** Returns one column: shared, not a copy. */
  public double[] column(int index) {
    return columns[index];
  }

  /** Returns all columns in order: shared, not copies. */
  public List<double[]> columns() {
    return List.of(columns);
  }
}
