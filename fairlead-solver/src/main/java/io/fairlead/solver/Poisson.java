package io.fairlead.solver;

/** Model problems: the Poisson equation on a regular grid with zero boundary values. */
public final class Poisson {
  /** The most points a side of {@link #grid3d}, whose entries then just fit an array. */
  public static final int GRID3D_MAX = 674;

  private Poisson() {}

  /**
   * Returns the 7-point Laplacian (6 on the diagonal, −1 beside it) on {@code n × n × n} points.
   *
   * @throws IllegalArgumentException if {@code n} is below 1 or the entries exceed an array
   */
  public static CsrMatrix grid3d(int n) {
    return grid(n, n, n, 6.0);
  }

  /** Returns the 5-point Laplacian (4 on the diagonal, −1 beside it) on {@code n × n} points. */
  public static CsrMatrix grid2d(int n) {
    return grid(n, n, 1, 4.0);
  }

  private static CsrMatrix grid(int nx, int ny, int nz, double diagonal) {
    long points = (long) nx * ny * nz;
    if (nx < 1 || points * 7 > Integer.MAX_VALUE - 8) {
      throw new IllegalArgumentException(
          "a grid of "
              + nx
              + " points a side: expected at least 1, and at most "
              + GRID3D_MAX
              + " in 3-D");
    }
    Filler filler = new Filler((int) points, nz > 1 ? 7 : 5);
    for (int z = 0; z < nz; z++) {
      for (int y = 0; y < ny; y++) {
        for (int x = 0; x < nx; x++) {
          int row = (z * ny + y) * nx + x;
          filler.add(z > 0, row - nx * ny, -1.0);
          filler.add(y > 0, row - nx, -1.0);
          filler.add(x > 0, row - 1, -1.0);
          filler.add(true, row, diagonal);
          filler.add(x < nx - 1, row + 1, -1.0);
          filler.add(y < ny - 1, row + nx, -1.0);
          filler.add(z < nz - 1, row + nx * ny, -1.0);
          filler.endRow(row);
        }
      }
    }
    return filler.matrix();
  }

  private static final class Filler {
    private final int rows;
    private final int[] ptr;
    private final int[] idx;
    private final double[] val;
    private int length;

    Filler(int rows, int entriesPerRow) {
      this.rows = rows;
      ptr = new int[rows + 1];
      idx = new int[rows * entriesPerRow];
      val = new double[rows * entriesPerRow];
    }

    void add(boolean inside, int col, double value) {
      if (inside) {
        idx[length] = col;
        val[length++] = value;
      }
    }

    void endRow(int row) {
      ptr[row + 1] = length;
    }

    CsrMatrix matrix() {
      return new CsrMatrix(rows, rows, ptr, idx, val);
    }
  }
}
