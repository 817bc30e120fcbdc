package io.fairlead.solver.internal;

import io.fairlead.solver.CsrMatrix;

/** Estimates of the largest eigenvalue of {@code D⁻¹A}, with {@code D} the diagonal of A. */
final class Spectrum {
  /** Rows in a piece worth a thread. */
  private static final int MIN_CHUNK = 4096;

  private static final int BISECTIONS = 40;

  private Spectrum() {}

  /** Returns an upper bound: the largest absolute row sum of {@code D⁻¹A} (Gershgorin). */
  static double bound(CsrMatrix a, double[] inverseDiagonal) {
    double most = 0.0;
    for (int i = 0; i < a.rows(); i++) {
      most = Math.max(most, absoluteRowSum(a, i) * inverseDiagonal[i]);
    }
    return most;
  }

  private static double absoluteRowSum(CsrMatrix a, int row) {
    double[] values = a.values();
    int end = a.rowPtr()[row + 1];
    double sum = 0.0;
    for (int k = a.rowPtr()[row]; k < end; k++) {
      sum += Math.abs(values[k]);
    }
    return sum;
  }

  /**
   * Returns the largest Ritz value after a few Lanczos steps on {@code D^-½ A D^-½} from a fixed
   * start: a lower bound, usually within a few percent of the largest eigenvalue.
   */
  static double lanczos(CsrMatrix a, double[] inverseDiagonal, int steps, Parallel parallel) {
    int n = a.rows();
    double[] root = new double[n];
    double[] v = new double[n];
    for (int i = 0; i < n; i++) {
      root[i] = Math.sqrt(inverseDiagonal[i]);
      v[i] = scatter(i);
    }
    double[] previous = new double[n];
    double[] scaled = new double[n];
    double[] w = new double[n];
    double[] alpha = new double[steps];
    double[] beta = new double[steps];
    double norm = Math.sqrt(dot(v, v));
    int done = 0;
    while (done < steps) {
      rescale(v, 1.0 / norm, root, scaled);
      multiply(a, scaled, root, w, parallel);
      alpha[done] = dot(v, w);
      recur(w, v, previous, alpha[done], norm * (done == 0 ? 0 : 1));
      norm = Math.sqrt(dot(w, w));
      beta[done] = norm;
      done++;
      if (!(norm > 1e-10 * alpha[0])) {
        break;
      }
      double[] free = previous;
      previous = v;
      v = w;
      w = free;
    }
    return largest(alpha, beta, done);
  }

  /** A fixed sequence without structure, in (−1, 1) (the finaliser of SplitMix64). */
  private static double scatter(int i) {
    long z = (i + 1) * 0x9E3779B97F4A7C15L;
    z = (z ^ (z >>> 30)) * 0xBF58476D1CE4E5B9L;
    z = (z ^ (z >>> 27)) * 0x94D049BB133111EBL;
    return ((z ^ (z >>> 31)) >> 11) * 0x1.0p-52;
  }

  private static void rescale(double[] v, double factor, double[] root, double[] scaled) {
    for (int i = 0; i < v.length; i++) {
      v[i] *= factor;
      scaled[i] = v[i] * root[i];
    }
  }

  private static void multiply(
      CsrMatrix a, double[] scaled, double[] root, double[] w, Parallel parallel) {
    parallel.forRange(
        a.rows(),
        MIN_CHUNK,
        (from, to) -> {
          a.multiply(scaled, w, from, to);
          for (int i = from; i < to; i++) {
            w[i] *= root[i];
          }
        });
  }

  private static void recur(double[] w, double[] v, double[] previous, double alpha, double beta) {
    for (int i = 0; i < w.length; i++) {
      w[i] -= alpha * v[i] + beta * previous[i];
    }
  }

  private static double dot(double[] u, double[] v) {
    double sum = 0.0;
    for (int i = 0; i < u.length; i++) {
      sum += u[i] * v[i];
    }
    return sum;
  }

  /** Returns the largest eigenvalue of the tridiagonal matrix, by counting those above a guess. */
  private static double largest(double[] alpha, double[] beta, int n) {
    double high = 0.0;
    for (int i = 0; i < n; i++) {
      double left = i > 0 ? beta[i - 1] : 0.0;
      double right = i + 1 < n ? beta[i] : 0.0;
      high = Math.max(high, alpha[i] + left + right);
    }
    double low = alpha[0];
    for (int s = 0; s < BISECTIONS; s++) {
      double middle = 0.5 * (low + high);
      if (allBelow(alpha, beta, n, middle)) {
        high = middle;
      } else {
        low = middle;
      }
    }
    return high;
  }

  private static boolean allBelow(double[] alpha, double[] beta, int n, double x) {
    double pivot = x - alpha[0];
    for (int i = 1; i < n && pivot > 0; i++) {
      pivot = x - alpha[i] - beta[i - 1] * beta[i - 1] / pivot;
    }
    return pivot > 0;
  }
}
