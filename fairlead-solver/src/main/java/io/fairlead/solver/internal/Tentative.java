package io.fairlead.solver.internal;

import io.fairlead.solver.CsrMatrix;
import java.util.Arrays;

/**
 * The tentative prolongator: the near-null space, cut into aggregates and made orthonormal in each.
 *
 * <p>{@code T · coarse = fine} holds for each near-null vector on every aggregated row. Vectors
 * that depend on the others within an aggregate (one with fewer rows than vectors, say) get no
 * column there, so a coarse node may have fewer unknowns than there are vectors.
 *
 * @param matrix the prolongator {@code T}, with orthonormal columns
 * @param coarse the near-null space of the coarse level
 * @param nodePtr the first coarse row of each aggregate, and the end of the last
 */
@SuppressWarnings("ArrayRecordComponent") // shared, never compared
record Tentative(CsrMatrix matrix, double[][] coarse, int[] nodePtr) {

  /** A vector that keeps less than this of its length after the others is dependent on them. */
  private static final double DEPENDENT = 1e-8;

  static Tentative of(Aggregation aggregation, int[] nodePtr, double[][] nearNull) {
    boolean scalar =
        nearNull.length == 1 && nodePtr.length == nearNull[0].length + 1 && nonZero(nearNull[0]);
    return scalar
        ? ofOneVector(aggregation, nearNull[0])
        : new Blocks(aggregation, nodePtr, nearNull).build();
  }

  private static boolean nonZero(double[] vector) {
    for (double v : vector) {
      if (v == 0.0) {
        return false;
      }
    }
    return true;
  }

  /** The common case: one row a node and one vector, where orthonormal means scaled. */
  private static Tentative ofOneVector(Aggregation aggregation, double[] vector) {
    int rows = vector.length;
    int count = aggregation.count();
    int[] aggregateOf = aggregation.aggregateOf();
    double[] norm = new double[count];
    for (int i = 0; i < rows; i++) {
      if (aggregateOf[i] >= 0) {
        norm[aggregateOf[i]] += vector[i] * vector[i];
      }
    }
    for (int c = 0; c < count; c++) {
      norm[c] = Math.sqrt(norm[c]);
    }
    int[] ptr = new int[rows + 1];
    int[] idx = new int[rows];
    double[] val = new double[rows];
    int length = 0;
    for (int i = 0; i < rows; i++) {
      int c = aggregateOf[i];
      if (c >= 0) {
        idx[length] = c;
        val[length++] = vector[i] / norm[c];
      }
      ptr[i + 1] = length;
    }
    CsrMatrix matrix = new CsrMatrix(rows, count, ptr, idx, val);
    return new Tentative(matrix, new double[][] {norm}, identity(count));
  }

  private static int[] identity(int count) {
    int[] ptr = new int[count + 1];
    for (int c = 0; c <= count; c++) {
      ptr[c] = c;
    }
    return ptr;
  }

  /** Several vectors: a QR factorisation (modified Gram-Schmidt, twice) for each aggregate. */
  private static final class Blocks {
    private final int count;
    private final int[] nodePtr;
    private final double[][] nearNull;
    private final int rows;
    private final int[] aggregateOfRow;

    private final int[] memberPtr;
    private final int[] members;
    private final int[] coarsePtr;
    private final double[][] coarse;

    /** The orthonormal vectors, by row and then by position among the kept ones. */
    private final double[][] basis;

    Blocks(Aggregation aggregation, int[] nodePtr, double[][] nearNull) {
      this.count = aggregation.count();
      this.nodePtr = nodePtr;
      this.nearNull = nearNull;
      this.rows = nearNull[0].length;
      this.aggregateOfRow = spread(aggregation.aggregateOf());
      this.memberPtr = new int[count + 1];
      this.members = gatherMembers();
      this.coarsePtr = new int[count + 1];
      this.coarse = new double[nearNull.length][Math.multiplyExact(count, nearNull.length)];
      this.basis = new double[nearNull.length][rows];
    }

    private int[] spread(int[] aggregateOf) {
      int[] spread = new int[rows];
      for (int v = 0; v + 1 < nodePtr.length; v++) {
        Arrays.fill(spread, nodePtr[v], nodePtr[v + 1], aggregateOf[v]);
      }
      return spread;
    }

    private int[] gatherMembers() {
      for (int c : aggregateOfRow) {
        if (c >= 0) {
          memberPtr[c + 1]++;
        }
      }
      for (int c = 0; c < count; c++) {
        memberPtr[c + 1] += memberPtr[c];
      }
      int[] next = memberPtr.clone();
      int[] gathered = new int[memberPtr[count]];
      for (int i = 0; i < rows; i++) {
        if (aggregateOfRow[i] >= 0) {
          gathered[next[aggregateOfRow[i]]++] = i;
        }
      }
      return gathered;
    }

    Tentative build() {
      for (int c = 0; c < count; c++) {
        coarsePtr[c + 1] = coarsePtr[c] + orthonormalise(c);
      }
      int coarseRows = coarsePtr[count];
      for (int m = 0; m < coarse.length; m++) {
        coarse[m] = Arrays.copyOf(coarse[m], coarseRows);
      }
      return new Tentative(matrix(coarseRows), coarse, coarsePtr);
    }

    /** Returns how many vectors are independent on the aggregate. */
    private int orthonormalise(int c) {
      int kept = 0;
      for (int m = 0; m < nearNull.length; m++) {
        double[] q = basis[kept];
        copyMembers(c, nearNull[m], q);
        double before = norm(c, q);
        project(c, m, kept, q);
        project(c, m, kept, q);
        double after = norm(c, q);
        if (after > DEPENDENT * before) {
          scale(c, q, 1.0 / after);
          coarse[m][coarsePtr[c] + kept] = after;
          kept++;
        }
      }
      return kept;
    }

    private void copyMembers(int c, double[] from, double[] to) {
      for (int k = memberPtr[c]; k < memberPtr[c + 1]; k++) {
        to[members[k]] = from[members[k]];
      }
    }

    private void project(int c, int m, int kept, double[] q) {
      for (int s = 0; s < kept; s++) {
        double[] basisVector = basis[s];
        double along = dot(c, basisVector, q);
        coarse[m][coarsePtr[c] + s] += along;
        for (int k = memberPtr[c]; k < memberPtr[c + 1]; k++) {
          q[members[k]] -= along * basisVector[members[k]];
        }
      }
    }

    private double dot(int c, double[] u, double[] v) {
      double sum = 0.0;
      for (int k = memberPtr[c]; k < memberPtr[c + 1]; k++) {
        sum += u[members[k]] * v[members[k]];
      }
      return sum;
    }

    private double norm(int c, double[] v) {
      return Math.sqrt(dot(c, v, v));
    }

    private void scale(int c, double[] v, double factor) {
      for (int k = memberPtr[c]; k < memberPtr[c + 1]; k++) {
        v[members[k]] *= factor;
      }
    }

    private CsrMatrix matrix(int coarseRows) {
      int[] ptr = new int[rows + 1];
      int[] idx = new int[Math.multiplyExact(rows, nearNull.length)];
      double[] val = new double[idx.length];
      int length = 0;
      for (int i = 0; i < rows; i++) {
        int c = aggregateOfRow[i];
        for (int q = c < 0 ? 0 : coarsePtr[c]; c >= 0 && q < coarsePtr[c + 1]; q++) {
          idx[length] = q;
          val[length++] = basis[q - coarsePtr[c]][i];
        }
        ptr[i + 1] = length;
      }
      return new CsrMatrix(rows, coarseRows, ptr, idx, val);
    }
  }
}
