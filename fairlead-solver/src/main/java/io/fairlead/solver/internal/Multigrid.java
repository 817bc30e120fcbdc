package io.fairlead.solver.internal;

import io.fairlead.solver.CsrMatrix;
import io.fairlead.solver.NotPositiveDefiniteException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Smoothed-aggregation multigrid, set up once for a matrix.
 *
 * <p>Each level in turn: strong connections, aggregates, the tentative prolongator {@code T} from
 * the near-null space, one damped Jacobi step {@code P = (I − ω D⁻¹A) T} with {@code ω = 4 / (3
 * λ)}, and the Galerkin product {@code Pᵀ A P} (Vaněk, Mandel and Brezina 1996). It ends when a
 * level is small enough to invert, or when coarsening stalls.
 */
public final class Multigrid {
  /** A level that keeps more than this part of the rows is not worth having. */
  private static final double STALLED = 0.8;

  private final Options options;
  private final Parallel parallel;
  private final List<Level> levels = new ArrayList<>();

  private CsrMatrix a;
  private double[][] nearNull;
  private int[] nodePtr;

  /**
   * What can be set.
   *
   * @param nearNullSpace vectors that the coarse levels must represent; null for the constant
   * @param blockSize rows of one point, which are aggregated together
   * @param strengthThreshold the θ of {@link NodeGraph} on the finest level
   * @param thresholdDecay by how much θ shrinks with each level
   * @param coarsestRows a level of at most so many rows is inverted
   * @param stalledRowsMax where coarsening stalls, a level up to this size is inverted nevertheless
   * @param levelsMax the most levels
   * @param lanczosSteps products with each level's operator to estimate its largest eigenvalue
   * @param eigenvalueSafety what that estimate is multiplied by for the smoother
   * @param chebyshev the smoother
   */
  @SuppressWarnings("ArrayRecordComponent") // shared, never compared
  public record Options(
      double @Nullable [][] nearNullSpace,
      int blockSize,
      double strengthThreshold,
      double thresholdDecay,
      int coarsestRows,
      int stalledRowsMax,
      int levelsMax,
      int lanczosSteps,
      double eigenvalueSafety,
      Chebyshev chebyshev) {

    /** What serves a scalar problem. */
    public static final Options DEFAULT =
        new Options(
            null,
            1,
            0.08,
            0.5,
            400,
            2000,
            20,
            8,
            1.1,
            new Chebyshev(Chebyshev.Kind.FIRST, 2, 10.0));

    /** Returns these options with a near-null space, for points of {@code rowsPerPoint} rows. */
    public Options withNearNullSpace(double @Nullable [][] vectors, int rowsPerPoint) {
      return new Options(
          vectors,
          rowsPerPoint,
          strengthThreshold,
          thresholdDecay,
          coarsestRows,
          stalledRowsMax,
          levelsMax,
          lanczosSteps,
          eigenvalueSafety,
          chebyshev);
    }
  }

  private Multigrid(CsrMatrix a, Options options, Parallel parallel) {
    this.a = a;
    this.options = options;
    this.parallel = parallel;
    this.nearNull = nearNullOf(a.rows(), options);
    this.nodePtr = points(a.rows(), options.blockSize());
  }

  /**
   * Sets up the levels for a symmetric positive definite matrix with ascending columns; its
   * symmetry is taken on trust. Runs on the caller's thread and those of {@code parallel}; the
   * result is the same bit for bit on any number of them.
   *
   * @throws NotPositiveDefiniteException if a diagonal entry or a pivot of the coarsest level is
   *     not positive
   * @throws IllegalArgumentException if the matrix is not square or empty, or the near-null space
   *     does not fit it
   */
  public static Hierarchy setUp(CsrMatrix a, Options options, Parallel parallel) {
    if (a.rows() != a.cols() || a.rows() == 0) {
      throw new IllegalArgumentException(
          "a matrix of " + a.rows() + " x " + a.cols() + ": expected square, with at least a row");
    }
    return new Multigrid(a, options, parallel).build();
  }

  private static double[][] nearNullOf(int rows, Options options) {
    double[][] given = options.nearNullSpace();
    if (given == null) {
      double[] constant = new double[rows];
      Arrays.fill(constant, 1.0);
      return new double[][] {constant};
    }
    for (double[] vector : given) {
      if (vector.length != rows) {
        throw new IllegalArgumentException(
            "a near-null vector of " + vector.length + " entries; expected " + rows);
      }
    }
    if (given.length == 0) {
      throw new IllegalArgumentException("no near-null vector; expected at least one, or null");
    }
    return given;
  }

  private static int[] points(int rows, int blockSize) {
    if (blockSize < 1 || rows % blockSize != 0) {
      throw new IllegalArgumentException(
          rows + " rows in points of " + blockSize + ": expected a divisor of the rows");
    }
    int[] ptr = new int[rows / blockSize + 1];
    for (int v = 0; v < ptr.length; v++) {
      ptr[v] = v * blockSize;
    }
    return ptr;
  }

  private Hierarchy build() {
    double threshold = options.strengthThreshold();
    while (true) {
      double[] inverse = inverseDiagonal(a);
      double bound = Spectrum.bound(a, inverse);
      double lambda = eigenvalue(inverse, bound);
      Level.@Nullable Transfer transfer = null;
      CsrMatrix fine = a;
      if (fine.rows() > options.coarsestRows() && levels.size() + 1 < options.levelsMax()) {
        transfer = coarsen(inverse, lambda, threshold);
      }
      levels.add(
          new Level(fine, inverse, Math.min(bound, lambda * options.eigenvalueSafety()), transfer));
      if (transfer == null) {
        return new Hierarchy(levels, invertIfSmall(fine), options.chebyshev());
      }
      threshold *= options.thresholdDecay();
    }
  }

  private @Nullable DenseInverse invertIfSmall(CsrMatrix coarsest) {
    return coarsest.rows() <= Math.max(options.coarsestRows(), options.stalledRowsMax())
        ? DenseInverse.of(coarsest, parallel)
        : null;
  }

  private double[] inverseDiagonal(CsrMatrix matrix) {
    double[] inverse = matrix.diagonal();
    for (int i = 0; i < inverse.length; i++) {
      if (!(inverse[i] > 0)) {
        throw notPositive(i, inverse[i]);
      }
      inverse[i] = 1.0 / inverse[i];
    }
    return inverse;
  }

  private NotPositiveDefiniteException notPositive(int row, double value) {
    return new NotPositiveDefiniteException(
        "the matrix is not positive definite: diagonal entry "
            + (row + 1)
            + (levels.isEmpty() ? "" : " of coarse level " + levels.size())
            + " is "
            + value
            + "; expected all to be positive");
  }

  private double eigenvalue(double[] inverse, double bound) {
    int steps = options.lanczosSteps();
    return steps == 0 ? bound : Math.min(bound, Spectrum.lanczos(a, inverse, steps, parallel));
  }

  /** Moves on to the next level and returns the way there, or null where there is none. */
  private Level.@Nullable Transfer coarsen(double[] inverse, double lambda, double threshold) {
    Aggregation aggregation = aggregate(threshold);
    Tentative tentative = Tentative.of(aggregation, nodePtr, nearNull);
    int coarseRows = tentative.matrix().cols();
    if (coarseRows == 0 || coarseRows > STALLED * a.rows()) {
      return null;
    }
    CsrMatrix p = smooth(tentative.matrix(), inverse, 4.0 / (3.0 * lambda));
    CsrMatrix r = p.transpose();
    int[] roots = rootRows(aggregation, tentative.nodePtr());
    a = SparseProduct.galerkin(r, a, p, parallel);
    nearNull = tentative.coarse();
    nodePtr = tentative.nodePtr();
    return new Level.Transfer(p, r, roots);
  }

  /** Aggregates, forgetting the threshold where it leaves too little to group. */
  private Aggregation aggregate(double threshold) {
    Aggregation aggregation = Aggregation.of(NodeGraph.of(a, nodePtr, threshold));
    int nodes = nodePtr.length - 1;
    if (threshold > 0 && aggregation.count() > STALLED * nodes) {
      return Aggregation.of(NodeGraph.of(a, nodePtr, 0.0));
    }
    return aggregation;
  }

  private CsrMatrix smooth(CsrMatrix tentative, double[] inverse, double omega) {
    CsrMatrix fine = a;
    return RowAssembly.assemble(
        fine.rows(),
        tentative.cols(),
        3.5,
        parallel,
        (out, counts, from, to) -> {
          for (int i = from; i < to; i++) {
            addScaled(tentative, i, 1.0, out);
            addSmoothing(fine, tentative, i, -omega * inverse[i], out);
            counts[i + 1] = out.endSortedRow();
          }
        });
  }

  private static void addSmoothing(
      CsrMatrix fine, CsrMatrix tentative, int row, double factor, RowBuffer out) {
    int[] idx = fine.colIdx();
    double[] val = fine.values();
    int end = fine.rowPtr()[row + 1];
    for (int k = fine.rowPtr()[row]; k < end; k++) {
      addScaled(tentative, idx[k], factor * val[k], out);
    }
  }

  private static void addScaled(CsrMatrix tentative, int row, double factor, RowBuffer out) {
    int end = tentative.rowPtr()[row + 1];
    for (int k = tentative.rowPtr()[row]; k < end; k++) {
      out.add(tentative.colIdx()[k], factor * tentative.values()[k]);
    }
  }

  private int[] rootRows(Aggregation aggregation, int[] coarsePtr) {
    int[] rows = new int[coarsePtr[coarsePtr.length - 1]];
    for (int c = 0; c < aggregation.count(); c++) {
      Arrays.fill(rows, coarsePtr[c], coarsePtr[c + 1], nodePtr[aggregation.roots()[c]]);
    }
    return rows;
  }
}
