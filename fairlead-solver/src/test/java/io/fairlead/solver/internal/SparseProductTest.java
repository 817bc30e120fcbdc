package io.fairlead.solver.internal;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.within;

import io.fairlead.solver.CsrMatrix;
import java.util.Arrays;
import org.junit.jupiter.api.Test;

class SparseProductTest {
  private static double[][] product(double[][] a, double[][] b) {
    double[][] c = new double[a.length][b[0].length];
    for (int i = 0; i < a.length; i++) {
      for (int k = 0; k < b.length; k++) {
        for (int j = 0; j < b[0].length; j++) {
          c[i][j] += a[i][k] * b[k][j];
        }
      }
    }
    return c;
  }

  private static void requireEqual(CsrMatrix actual, double[][] expected) {
    double[][] dense = RandomMatrices.dense(actual);
    for (int i = 0; i < expected.length; i++) {
      assertThat(dense[i]).containsExactly(expected[i], within(1e-12));
    }
  }

  @Test
  void equalsTheDenseProduct() {
    for (int seed = 0; seed < 20; seed++) {
      double density = seed < 10 ? 0.05 : 0.6;
      CsrMatrix a = RandomMatrices.sparse(40 + seed, 90, density, seed);
      CsrMatrix b = RandomMatrices.sparse(90, 70 + seed, density, 100 + seed);
      CsrMatrix c = SparseProduct.multiply(a, b, Parallel.SEQUENTIAL);
      requireEqual(c, product(RandomMatrices.dense(a), RandomMatrices.dense(b)));
      requireAscending(c);
    }
  }

  @Test
  void galerkinEqualsTheDenseOne() {
    CsrMatrix a = RandomMatrices.laplacian(120, 3, 0.1, 4);
    CsrMatrix p = RandomMatrices.sparse(120, 30, 0.1, 5);
    CsrMatrix coarse = SparseProduct.galerkin(p.transpose(), a, p, Parallel.SEQUENTIAL);
    double[][] ap = product(RandomMatrices.dense(a), RandomMatrices.dense(p));
    requireEqual(coarse, product(RandomMatrices.dense(p.transpose()), ap));
    requireAscending(coarse);
  }

  private static void requireAscending(CsrMatrix c) {
    for (int i = 0; i < c.rows(); i++) {
      for (int k = c.rowPtr()[i] + 1; k < c.rowPtr()[i + 1]; k++) {
        assertThat(c.colIdx()[k]).isGreaterThan(c.colIdx()[k - 1]);
      }
    }
  }

  @Test
  void threadsDoNotChangeABit() {
    CsrMatrix a = RandomMatrices.laplacian(20_000, 3, 0.1, 4);
    CsrMatrix alone = SparseProduct.multiply(a, a, Parallel.SEQUENTIAL);
    for (int threads : new int[] {2, 3, 5}) {
      try (TestThreads parallel = new TestThreads(threads)) {
        CsrMatrix together = SparseProduct.multiply(a, a, parallel);
        assertThat(together.rowPtr()).containsExactly(alone.rowPtr());
        assertThat(
                Arrays.equals(
                    Arrays.copyOf(together.values(), together.entries()),
                    Arrays.copyOf(alone.values(), alone.entries())))
            .isTrue();
        assertThat(
                Arrays.equals(
                    Arrays.copyOf(together.colIdx(), together.entries()),
                    Arrays.copyOf(alone.colIdx(), alone.entries())))
            .isTrue();
      }
    }
  }
}
