package io.fairlead.solver.internal;

import io.fairlead.solver.CsrMatrix;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.SplittableRandom;
import java.util.TreeMap;

/** Seeded matrices for tests. */
final class RandomMatrices {
  private RandomMatrices() {}

  static CsrMatrix ofDense(double[][] full) {
    int rows = full.length;
    int cols = full[0].length;
    int[] ptr = new int[rows + 1];
    int[] idx = new int[rows * cols];
    double[] val = new double[rows * cols];
    int length = 0;
    for (int i = 0; i < rows; i++) {
      for (int j = 0; j < cols; j++) {
        if (full[i][j] != 0) {
          idx[length] = j;
          val[length++] = full[i][j];
        }
      }
      ptr[i + 1] = length;
    }
    return new CsrMatrix(rows, cols, ptr, idx, val);
  }

  static double[][] dense(CsrMatrix a) {
    double[][] full = new double[a.rows()][a.cols()];
    for (int i = 0; i < a.rows(); i++) {
      for (int k = a.rowPtr()[i]; k < a.rowPtr()[i + 1]; k++) {
        full[i][a.colIdx()[k]] += a.values()[k];
      }
    }
    return full;
  }

  static CsrMatrix sparse(int rows, int cols, double density, long seed) {
    SplittableRandom random = new SplittableRandom(seed);
    double[][] full = new double[rows][cols];
    for (double[] row : full) {
      for (int j = 0; j < cols; j++) {
        row[j] = random.nextDouble() < density ? random.nextDouble(-1, 1) : 0;
      }
    }
    return ofDense(full);
  }

  /** A weighted graph's Laplacian with random edges and conductances, and a little mass. */
  static CsrMatrix laplacian(int n, int edgesPerNode, double mass, long seed) {
    SplittableRandom random = new SplittableRandom(seed);
    double[][] weights = new double[n][];
    int[][] ends = new int[n][];
    for (int i = 0; i < n; i++) {
      ends[i] = new int[edgesPerNode];
      weights[i] = new double[edgesPerNode];
      for (int e = 0; e < edgesPerNode; e++) {
        ends[i][e] = Math.floorMod(i + 1 + random.nextInt(20), n);
        weights[i][e] = Math.pow(10, random.nextDouble(-1, 1));
      }
    }
    return assembleLaplacian(n, ends, weights, mass);
  }

  private static CsrMatrix assembleLaplacian(int n, int[][] ends, double[][] weights, double mass) {
    List<TreeMap<Integer, Double>> rows = new ArrayList<>();
    for (int i = 0; i < n; i++) {
      rows.add(new TreeMap<>());
      rows.get(i).put(i, mass);
    }
    for (int i = 0; i < n; i++) {
      for (int e = 0; e < ends[i].length; e++) {
        int j = ends[i][e];
        double w = weights[i][e];
        if (i != j) {
          rows.get(i).merge(j, -w, Double::sum);
          rows.get(j).merge(i, -w, Double::sum);
          rows.get(i).merge(i, w, Double::sum);
          rows.get(j).merge(j, w, Double::sum);
        }
      }
    }
    int entries = rows.stream().mapToInt(Map::size).sum();
    int[] ptr = new int[n + 1];
    int[] idx = new int[entries];
    double[] val = new double[entries];
    int length = 0;
    for (int i = 0; i < n; i++) {
      for (var entry : rows.get(i).entrySet()) {
        idx[length] = entry.getKey();
        val[length++] = entry.getValue();
      }
      ptr[i + 1] = length;
    }
    return new CsrMatrix(n, n, ptr, idx, val);
  }

  static double[] vector(int n, long seed) {
    SplittableRandom random = new SplittableRandom(seed);
    double[] v = new double[n];
    for (int i = 0; i < n; i++) {
      v[i] = random.nextDouble(-1, 1);
    }
    return v;
  }
}
