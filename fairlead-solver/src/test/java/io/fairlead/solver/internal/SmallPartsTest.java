package io.fairlead.solver.internal;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.assertj.core.api.Assertions.within;

import io.fairlead.solver.CsrMatrix;
import io.fairlead.solver.MatrixTooLargeException;
import io.fairlead.solver.Poisson;
import java.util.Arrays;
import org.junit.jupiter.api.Test;

/** The dense inverse, the eigenvalue estimates and the smoother's polynomial. */
class SmallPartsTest {

  @Test
  void theInverseTimesTheMatrixIsTheIdentity() {
    for (int n : new int[] {1, 2, 7, 150, 400}) {
      CsrMatrix a = RandomMatrices.laplacian(n, 3, 0.5, n);
      DenseInverse inverse = DenseInverse.of(a, Parallel.SEQUENTIAL);
      double[] x = RandomMatrices.vector(n, 2);
      double[] ax = new double[n];
      double[] back = new double[n];
      a.multiply(x, ax);
      inverse.multiply(ax, back);
      assertThat(back).containsExactly(x, within(1e-11));
      for (int i = 0; i < n; i++) {
        for (int j = 0; j < i; j++) {
          assertThat(inverse.entries()[i * n + j]).isEqualTo(inverse.entries()[j * n + i]);
        }
      }
    }
  }

  @Test
  void threadsDoNotChangeTheInverse() {
    CsrMatrix a = RandomMatrices.laplacian(500, 3, 0.5, 1);
    double[] alone = DenseInverse.of(a, Parallel.SEQUENTIAL).entries();
    try (TestThreads parallel = new TestThreads(3)) {
      assertThat(DenseInverse.of(a, parallel).entries()).containsExactly(alone);
    }
  }

  @Test
  void eigenvaluesOfTheGridAreFound() {
    int n = 30;
    CsrMatrix a = Poisson.grid2d(n);
    double[] inverse = new double[a.rows()];
    Arrays.fill(inverse, 0.25);
    double exact = 1 + Math.cos(Math.PI / (n + 1));
    assertThat(Spectrum.bound(a, inverse)).isEqualTo(2.0);
    double few = Spectrum.lanczos(a, inverse, 8, Parallel.SEQUENTIAL);
    assertThat(few).isBetween(0.93 * exact, exact);
    double many = Spectrum.lanczos(a, inverse, 100, Parallel.SEQUENTIAL);
    assertThat(many).isCloseTo(exact, within(1e-6));
  }

  @Test
  void lanczosStopsWhereNothingIsLeft() {
    CsrMatrix a = RandomMatrices.ofDense(new double[][] {{3, 0}, {0, 3}});
    double[] inverse = {1 / 3.0, 1 / 3.0};
    assertThat(Spectrum.lanczos(a, inverse, 8, Parallel.SEQUENTIAL)).isCloseTo(1, within(1e-12));
  }

  /** Applies the steps to the scalar problem {@code λ e = 0} from {@code e = 1}. */
  private static double errorFactor(Chebyshev.Steps steps, double lambda) {
    double error = 1;
    double r = -lambda;
    double d = 0;
    for (int k = 0; k < steps.gain().length; k++) {
      d = steps.momentum()[k] * d + steps.gain()[k] * r;
      error += steps.weight()[k] * d;
      r -= lambda * d;
    }
    return error;
  }

  @Test
  void theFirstKindIsLeastOnItsInterval() {
    for (int degree = 1; degree <= 4; degree++) {
      Chebyshev chebyshev = new Chebyshev(Chebyshev.Kind.FIRST, degree, 10.0);
      Chebyshev.Steps steps = chebyshev.steps(2.0);
      double sigma = (2.0 + 0.2) / (2.0 - 0.2);
      double least = 1 / Math.cosh(degree * Math.log(sigma + Math.sqrt(sigma * sigma - 1)));
      double most = 0;
      for (double lambda = 0.2; lambda <= 2.0; lambda += 0.001) {
        most = Math.max(most, Math.abs(errorFactor(steps, lambda)));
      }
      assertThat(most).isCloseTo(least, within(1e-3));
    }
  }

  @Test
  void theFourthKindContractsEverywhereBelowTheLargest() {
    for (int degree = 1; degree <= 4; degree++) {
      Chebyshev.Steps steps = new Chebyshev(Chebyshev.Kind.FOURTH, degree, 10.0).steps(2.0);
      for (double lambda = 0.001; lambda <= 2.0; lambda += 0.001) {
        assertThat(Math.abs(errorFactor(steps, lambda))).isLessThan(1);
      }
    }
  }

  @Test
  void degreesBeyondTheTableAreRefused() {
    assertThatThrownBy(() -> new Chebyshev(Chebyshev.Kind.FIRST, 5, 10))
        .hasMessage("Chebyshev degree 5, ratio 10.0: expected 1 to 4, and above 1");
  }

  @Test
  void moreEntriesThanAnArrayHoldsAreRefused() {
    int[] counts = {0, 1 << 30, (1 << 30) - 9};
    RowAssembly.prefixSum(counts);
    assertThat(counts).containsExactly(0, 1 << 30, Integer.MAX_VALUE - 8);
    assertThatThrownBy(() -> RowAssembly.prefixSum(new int[] {0, 1 << 30, 1 << 30}))
        .isInstanceOf(MatrixTooLargeException.class)
        .hasMessageContaining("2^31");
  }
}
