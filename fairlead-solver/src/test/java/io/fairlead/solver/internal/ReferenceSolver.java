package io.fairlead.solver.internal;

import io.fairlead.solver.CsrMatrix;
import java.util.Arrays;

/**
 * Conjugate gradients in plain Java, to count iterations and to compare the device solve with. Sums
 * run over fixed blocks, so results are the same bit for bit on any number of threads.
 */
final class ReferenceSolver {
  private static final int BLOCK = 4096;
  private static final int MIN_CHUNK = 4096;

  /** {@code z = M⁻¹ r}. */
  interface Preconditioner {
    void apply(double[] r, double[] z);
  }

  @SuppressWarnings("ArrayRecordComponent") // never compared
  record Result(
      double[] x, int iterations, boolean converged, double relativeResidual, double factor) {}

  private final CsrMatrix a;
  private final Parallel parallel;
  private final Preconditioner preconditioner;
  private final double[] partial;

  ReferenceSolver(CsrMatrix a, Preconditioner preconditioner, Parallel parallel) {
    this.a = a;
    this.parallel = parallel;
    this.preconditioner = preconditioner;
    this.partial = new double[(a.rows() + BLOCK - 1) / BLOCK];
  }

  static Preconditioner none() {
    return (r, z) -> System.arraycopy(r, 0, z, 0, r.length);
  }

  static Preconditioner jacobi(CsrMatrix a) {
    double[] diagonal = a.diagonal();
    return (r, z) -> {
      for (int i = 0; i < r.length; i++) {
        z[i] = r[i] / diagonal[i];
      }
    };
  }

  static Preconditioner multigrid(Hierarchy hierarchy, Parallel parallel) {
    VCycle cycle = new VCycle(hierarchy, parallel);
    return cycle::apply;
  }

  /** Solves until the true residual, recomputed when the recurrence claims it, is small enough. */
  Result solve(double[] b, double[] x0, double tolerance, int most) {
    int n = a.rows();
    double[] x = x0.clone();
    double[] r = new double[n];
    double[] z = new double[n];
    double[] p = new double[n];
    double[] q = new double[n];
    double scale = Math.sqrt(dot(b, b));
    double target = tolerance * scale;
    double norm = trueResidual(b, x, r);
    double first = norm;
    double rz = 0.0;
    boolean restart = true;
    int iterations = 0;
    while (norm > target && iterations < most) {
      preconditioner.apply(r, z);
      double next = dot(r, z);
      combine(z, restart ? 0.0 : next / rz, p);
      rz = next;
      restart = false;
      multiply(p, q);
      double energy = dot(p, q);
      if (!(energy > 0)) {
        throw new IllegalStateException("p'Ap = " + energy);
      }
      double alpha = rz / energy;
      update(alpha, p, q, x, r);
      iterations++;
      norm = Math.sqrt(dot(r, r));
      if (norm <= target) {
        double confirmed = trueResidual(b, x, r);
        restart = confirmed > target;
        norm = confirmed;
      }
    }
    double factor = iterations == 0 ? 0 : Math.pow(norm / first, 1.0 / iterations);
    return new Result(x, iterations, norm <= target, norm / scale, factor);
  }

  private double trueResidual(double[] b, double[] x, double[] r) {
    parallel.forRange(
        a.rows(),
        MIN_CHUNK,
        (from, to) -> {
          a.multiply(x, r, from, to);
          for (int i = from; i < to; i++) {
            r[i] = b[i] - r[i];
          }
        });
    return Math.sqrt(dot(r, r));
  }

  private void multiply(double[] p, double[] q) {
    parallel.forRange(a.rows(), MIN_CHUNK, (from, to) -> a.multiply(p, q, from, to));
  }

  private void combine(double[] z, double beta, double[] p) {
    parallel.forRange(
        p.length,
        MIN_CHUNK,
        (from, to) -> {
          for (int i = from; i < to; i++) {
            p[i] = z[i] + beta * p[i];
          }
        });
  }

  private void update(double alpha, double[] p, double[] q, double[] x, double[] r) {
    parallel.forRange(
        p.length,
        MIN_CHUNK,
        (from, to) -> {
          for (int i = from; i < to; i++) {
            x[i] += alpha * p[i];
            r[i] -= alpha * q[i];
          }
        });
  }

  double dot(double[] u, double[] v) {
    parallel.forRange(
        partial.length,
        2,
        (from, to) -> {
          for (int block = from; block < to; block++) {
            int start = block * BLOCK;
            partial[block] = dot(u, v, start, Math.min(start + BLOCK, u.length));
          }
        });
    double sum = 0.0;
    for (double part : partial) {
      sum += part;
    }
    return sum;
  }

  private static double dot(double[] u, double[] v, int from, int to) {
    double sum = 0.0;
    for (int i = from; i < to; i++) {
      sum += u[i] * v[i];
    }
    return sum;
  }

  /** One V-cycle from a zero guess, with the same smoother before and after: symmetric. */
  static final class VCycle {
    private final Hierarchy hierarchy;
    private final Parallel parallel;
    private final Workspace[] spaces;

    private static final class Workspace {
      final double[] b;
      final double[] x;
      final double[] r;
      final double[] d;
      final Chebyshev.Steps steps;

      Workspace(Level level, Chebyshev chebyshev) {
        b = new double[level.rows()];
        x = new double[level.rows()];
        r = new double[level.rows()];
        d = new double[level.rows()];
        steps = chebyshev.steps(level.lambdaMax());
      }
    }

    VCycle(Hierarchy hierarchy, Parallel parallel) {
      this.hierarchy = hierarchy;
      this.parallel = parallel;
      this.spaces = new Workspace[hierarchy.levels().size()];
      for (int l = 0; l < spaces.length; l++) {
        spaces[l] = new Workspace(hierarchy.levels().get(l), hierarchy.chebyshev());
      }
    }

    void apply(double[] r, double[] z) {
      cycle(0, r, z);
    }

    private void cycle(int l, double[] b, double[] x) {
      Level level = hierarchy.levels().get(l);
      Workspace w = spaces[l];
      Level.Transfer transfer = level.coarser();
      DenseInverse inverse = hierarchy.coarse();
      if (transfer == null && inverse != null) {
        inverse.multiply(b, x);
        return;
      }
      smoothFromZero(level, w, b, x);
      if (transfer != null) {
        Workspace next = spaces[l + 1];
        residual(level.a(), b, x, w.r);
        rows(transfer.r(), (from, to) -> transfer.r().multiply(w.r, next.b, from, to));
        cycle(l + 1, next.b, next.x);
        rows(
            transfer.p(),
            (from, to) -> {
              transfer.p().multiply(next.x, w.d, from, to);
              for (int i = from; i < to; i++) {
                x[i] += w.d[i];
              }
            });
      }
      residual(level.a(), b, x, w.r);
      smooth(level, w, x);
    }

    private void smoothFromZero(Level level, Workspace w, double[] b, double[] x) {
      Arrays.fill(x, 0.0);
      System.arraycopy(b, 0, w.r, 0, b.length);
      smooth(level, w, x);
    }

    /** From the residual in {@code w.r}. */
    private void smooth(Level level, Workspace w, double[] x) {
      for (int k = 0; k < w.steps.gain().length; k++) {
        int step = k;
        rows(level.a(), (from, to) -> advance(level, w, x, step, from, to));
        if (k + 1 < w.steps.gain().length) {
          rows(level.a(), (from, to) -> reduce(level.a(), w, from, to));
        }
      }
    }

    private static void advance(Level level, Workspace w, double[] x, int k, int from, int to) {
      double momentum = w.steps.momentum()[k];
      double gain = w.steps.gain()[k];
      double weight = w.steps.weight()[k];
      double[] inverse = level.inverseDiagonal();
      double[] d = w.d;
      double[] r = w.r;
      for (int i = from; i < to; i++) {
        double v = gain * inverse[i] * r[i];
        d[i] = k == 0 ? v : momentum * d[i] + v;
        x[i] += weight * d[i];
      }
    }

    private static void reduce(CsrMatrix a, Workspace w, int from, int to) {
      int[] ptr = a.rowPtr();
      int[] idx = a.colIdx();
      double[] val = a.values();
      double[] d = w.d;
      for (int i = from; i < to; i++) {
        double sum = 0.0;
        for (int k = ptr[i]; k < ptr[i + 1]; k++) {
          sum += val[k] * d[idx[k]];
        }
        w.r[i] -= sum;
      }
    }

    private void residual(CsrMatrix a, double[] b, double[] x, double[] r) {
      rows(
          a,
          (from, to) -> {
            a.multiply(x, r, from, to);
            for (int i = from; i < to; i++) {
              r[i] = b[i] - r[i];
            }
          });
    }

    private void rows(CsrMatrix a, Parallel.RangeBody body) {
      parallel.forRange(a.rows(), MIN_CHUNK, body);
    }
  }
}
