package io.fairlead.solver.internal;

import java.util.Arrays;

/**
 * Groups nodes into aggregates, each of which becomes one node of the coarser level.
 *
 * <p>Three passes in the order of the rows (Vaněk, Mandel and Brezina 1996):
 *
 * <ol>
 *   <li>a node none of whose neighbours is taken becomes a root and takes them all;
 *   <li>a node left over joins the aggregate of its strongest neighbour from the first pass;
 *   <li>what is still left forms aggregates with its free neighbours.
 * </ol>
 *
 * <p>Aggregates are numbered in the order of their roots, so that a contiguous block of nodes roots
 * a contiguous block of aggregates.
 *
 * @param aggregateOf the aggregate of each node, or {@link #NONE} for nodes that smoothing alone
 *     solves
 * @param roots the root node of each aggregate, ascending
 */
@SuppressWarnings("ArrayRecordComponent") // shared, never compared
record Aggregation(int[] aggregateOf, int[] roots) {
  /** Not in any aggregate. */
  static final int NONE = -1;

  private static final int FREE = -2;

  int count() {
    return roots.length;
  }

  static Aggregation of(NodeGraph graph) {
    Passes passes = new Passes(graph);
    passes.takeWholeNeighbourhoods();
    passes.joinStrongest();
    passes.gatherRest();
    return passes.numberedByRoot();
  }

  private static final class Passes {
    private final int nodes;
    private final int[] ptr;
    private final int[] idx;
    private final float[] weight;
    private final int[] aggregateOf;
    private int[] roots;
    private int count;

    Passes(NodeGraph graph) {
      nodes = graph.nodes();
      ptr = graph.ptr();
      idx = graph.idx();
      weight = graph.weight();
      aggregateOf = new int[nodes];
      roots = new int[nodes / 4 + 16];
      for (int v = 0; v < nodes; v++) {
        aggregateOf[v] = graph.dominant()[v] ? NONE : FREE;
      }
    }

    void takeWholeNeighbourhoods() {
      for (int v = 0; v < nodes; v++) {
        if (aggregateOf[v] == FREE && ptr[v + 1] > ptr[v] && neighboursFree(v)) {
          takeFree(v);
        }
      }
    }

    private boolean neighboursFree(int v) {
      int end = ptr[v + 1];
      for (int k = ptr[v]; k < end; k++) {
        if (aggregateOf[idx[k]] >= 0) {
          return false;
        }
      }
      return true;
    }

    private void takeFree(int v) {
      if (count == roots.length) {
        roots = Arrays.copyOf(roots, count * 2);
      }
      roots[count] = v;
      aggregateOf[v] = count;
      int end = ptr[v + 1];
      for (int k = ptr[v]; k < end; k++) {
        if (aggregateOf[idx[k]] == FREE) {
          aggregateOf[idx[k]] = count;
        }
      }
      count++;
    }

    /** Joins are noted below {@link #FREE} first, so that no node joins through another joiner. */
    void joinStrongest() {
      for (int v = 0; v < nodes; v++) {
        if (aggregateOf[v] == FREE) {
          aggregateOf[v] = FREE - 1 - strongestAggregate(v);
        }
      }
      for (int v = 0; v < nodes; v++) {
        if (aggregateOf[v] < FREE) {
          aggregateOf[v] = FREE - 1 - aggregateOf[v];
        }
      }
    }

    /** Returns the aggregate of the strongest taken neighbour, or −1, which leaves a node free. */
    private int strongestAggregate(int v) {
      int best = -1;
      float most = 0;
      int end = ptr[v + 1];
      for (int k = ptr[v]; k < end; k++) {
        if (aggregateOf[idx[k]] >= 0 && weight[k] > most) {
          most = weight[k];
          best = aggregateOf[idx[k]];
        }
      }
      return best;
    }

    void gatherRest() {
      for (int v = 0; v < nodes; v++) {
        if (aggregateOf[v] == FREE) {
          takeFree(v);
        }
      }
    }

    Aggregation numberedByRoot() {
      int[] ordered = Arrays.copyOf(roots, count);
      int[] oldRoots = ordered.clone();
      Arrays.sort(ordered);
      int[] numberOfRoot = new int[nodes];
      for (int c = 0; c < count; c++) {
        numberOfRoot[ordered[c]] = c;
      }
      for (int v = 0; v < nodes; v++) {
        if (aggregateOf[v] >= 0) {
          aggregateOf[v] = numberOfRoot[oldRoots[aggregateOf[v]]];
        }
      }
      return new Aggregation(aggregateOf, ordered);
    }
  }
}
