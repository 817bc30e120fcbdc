package io.fairlead.solver.internal;

import io.fairlead.solver.CsrMatrix;

/**
 * The strong connections between nodes. A node is one row, or the rows {@code nodePtr[v]} to {@code
 * nodePtr[v + 1]} of one point with several unknowns.
 *
 * <p>Nodes {@code v} and {@code w} are strongly connected where {@code |a_vw|² > θ² a_vv a_ww}, the
 * symmetric measure of Vaněk, Mandel and Brezina (1996); for blocks, {@code |·|} is the Frobenius
 * norm.
 *
 * @param ptr starts of each node's connections
 * @param idx the other ends, without the node itself
 * @param weight how strong each is: {@code |a_vw|² / (a_vv a_ww)}
 * @param dominant nodes that a point smoother alone solves fast: no strong connection, and an
 *     off-diagonal sum below half of the diagonal
 */
@SuppressWarnings("ArrayRecordComponent") // shared, never compared
record NodeGraph(int[] ptr, int[] idx, float[] weight, boolean[] dominant) {

  /** How small the off-diagonal sum must be, against the diagonal, to leave a row to smoothing. */
  private static final double DOMINANT = 0.5;

  int nodes() {
    return dominant.length;
  }

  static NodeGraph of(CsrMatrix a, int[] nodePtr, double threshold) {
    boolean scalar = nodePtr.length == a.rows() + 1;
    return ofScalar(scalar ? a : condense(a, nodePtr), threshold);
  }

  private static NodeGraph ofScalar(CsrMatrix a, double threshold) {
    double[] inverse = a.diagonal();
    for (int i = 0; i < inverse.length; i++) {
      inverse[i] = 1.0 / Math.abs(inverse[i]);
    }
    Filler filler = new Filler(a, inverse, threshold * threshold);
    for (int i = 0; i < a.rows(); i++) {
      filler.addRow(i);
    }
    return new NodeGraph(filler.ptr, filler.idx, filler.weight, filler.dominant);
  }

  /** Row by row, so that a short method becomes hot instead of one long loop. */
  private static final class Filler {
    private final int[] rowPtr;
    private final int[] colIdx;
    private final double[] values;
    private final double[] inverse;
    private final double least;
    final int[] ptr;
    final int[] idx;
    final float[] weight;
    final boolean[] dominant;
    private int length;

    Filler(CsrMatrix a, double[] inverse, double least) {
      this.rowPtr = a.rowPtr();
      this.colIdx = a.colIdx();
      this.values = a.values();
      this.inverse = inverse;
      this.least = least;
      this.ptr = new int[a.rows() + 1];
      this.idx = new int[a.entries()];
      this.weight = new float[a.entries()];
      this.dominant = new boolean[a.rows()];
    }

    void addRow(int i) {
      int end = rowPtr[i + 1];
      int at = length;
      double sum = 0.0;
      for (int k = rowPtr[i]; k < end; k++) {
        int j = colIdx[k];
        double v = values[k];
        double strength = v * v * inverse[i] * inverse[j];
        if (j != i) {
          sum += Math.abs(v);
          if (strength > least) {
            idx[at] = j;
            weight[at++] = (float) strength;
          }
        }
      }
      dominant[i] = at == length && sum * inverse[i] <= DOMINANT;
      length = at;
      ptr[i + 1] = at;
    }
  }

  /** Returns the matrix of block norms: one row for each node. */
  private static CsrMatrix condense(CsrMatrix a, int[] nodePtr) {
    int nodes = nodePtr.length - 1;
    int[] nodeOf = new int[a.rows()];
    for (int v = 0; v < nodes; v++) {
      for (int i = nodePtr[v]; i < nodePtr[v + 1]; i++) {
        nodeOf[i] = v;
      }
    }
    CsrMatrix squares =
        RowAssembly.assemble(
            nodes,
            nodes,
            8.0,
            Parallel.SEQUENTIAL,
            (out, counts, from, to) -> {
              for (int v = from; v < to; v++) {
                addSquares(a, nodePtr[v], nodePtr[v + 1], nodeOf, out);
                counts[v + 1] = out.endSortedRow();
              }
            });
    double[] norms = new double[squares.entries()];
    for (int k = 0; k < norms.length; k++) {
      norms[k] = Math.sqrt(squares.values()[k]);
    }
    return new CsrMatrix(nodes, nodes, squares.rowPtr(), squares.colIdx(), norms);
  }

  private static void addSquares(CsrMatrix a, int from, int to, int[] nodeOf, RowBuffer out) {
    int end = a.rowPtr()[to];
    for (int k = a.rowPtr()[from]; k < end; k++) {
      double v = a.values()[k];
      out.add(nodeOf[a.colIdx()[k]], v * v);
    }
  }
}
