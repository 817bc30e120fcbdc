package io.fairlead.solver;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.runtime.Fairlead;
import io.fairlead.runtime.FairleadConfig;
import io.fairlead.task.WaitMode;
import java.util.Arrays;
import java.util.Random;

/**
 * What the solver's tests share: a host device, matrices, and a check against the plain product.
 */
final class SolverFixture {
  private SolverFixture() {}

  static FairleadConfig host() {
    return FairleadConfig.defaults().withDevice("host").withHostWorkers(2);
  }

  static Fairlead open() {
    return Fairlead.open(host());
  }

  static Fairlead open(WaitMode mode) {
    return Fairlead.open(host().withWaitMode(mode));
  }

  static double[] ones(int n) {
    double[] ones = new double[n];
    Arrays.fill(ones, 1.0);
    return ones;
  }

  static double[] random(int n, long seed) {
    return new Random(seed).doubles(n, -1, 1).toArray();
  }

  static double[] times(CsrMatrix a, double[] x) {
    double[] y = new double[a.rows()];
    a.multiply(x, y);
    return y;
  }

  static double norm(double[] v) {
    double sum = 0;
    for (double each : v) {
      sum += each * each;
    }
    return Math.sqrt(sum);
  }

  /** {@code |b − A x| / |b|} on the host. */
  static double relativeResidual(CsrMatrix a, double[] x, double[] b) {
    double[] r = times(a, x);
    for (int i = 0; i < r.length; i++) {
      r[i] = b[i] - r[i];
    }
    return norm(r) / norm(b);
  }

  /** The report says converged, and the plain product agrees. */
  static void assertSolved(CsrMatrix a, Solution solution, double[] b, double tolerance) {
    assertThat(solution.report().converged()).as("%s", solution.report()).isTrue();
    assertThat(solution.report().relativeResidual()).isLessThanOrEqualTo(tolerance);
    assertThat(relativeResidual(a, solution.x(), b)).isLessThanOrEqualTo(1.01 * tolerance);
  }

  static CsrMatrix diagonal(double... values) {
    int n = values.length;
    int[] ptr = new int[n + 1];
    int[] col = new int[n];
    for (int i = 0; i < n; i++) {
      ptr[i + 1] = i + 1;
      col[i] = i;
    }
    return new CsrMatrix(n, n, ptr, col, values);
  }

  /** Copies of a matrix side by side, without a connection. */
  static CsrMatrix copies(CsrMatrix a, int count) {
    int n = a.rows();
    int entries = a.entries();
    int[] ptr = new int[n * count + 1];
    int[] col = new int[entries * count];
    double[] val = new double[entries * count];
    for (int c = 0; c < count; c++) {
      for (int i = 0; i < n; i++) {
        ptr[c * n + i + 1] = c * entries + a.rowPtr()[i + 1];
      }
      for (int k = 0; k < entries; k++) {
        col[c * entries + k] = a.colIdx()[k] + c * n;
        val[c * entries + k] = a.values()[k];
      }
    }
    return new CsrMatrix(n * count, n * count, ptr, col, val);
  }

  /** Each entry becomes a block of {@code size} rows: {@code a_ij I}. */
  static CsrMatrix blocks(CsrMatrix a, int size) {
    int n = a.rows();
    int[] ptr = new int[n * size + 1];
    int[] col = new int[a.entries() * size];
    double[] val = new double[a.entries() * size];
    int length = 0;
    for (int i = 0; i < n; i++) {
      for (int s = 0; s < size; s++) {
        for (int k = a.rowPtr()[i]; k < a.rowPtr()[i + 1]; k++) {
          col[length] = a.colIdx()[k] * size + s;
          val[length++] = a.values()[k];
        }
        ptr[i * size + s + 1] = length;
      }
    }
    return new CsrMatrix(n * size, n * size, ptr, col, val);
  }

  /** A with something added to the diagonal. */
  static CsrMatrix shifted(CsrMatrix a, double shift) {
    double[] values = Arrays.copyOf(a.values(), a.entries());
    for (int i = 0; i < a.rows(); i++) {
      values[a.find(i, i)] += shift;
    }
    return new CsrMatrix(a.rows(), a.cols(), a.rowPtr(), a.colIdx(), values);
  }
}
