package io.fairlead.solver.internal;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.assertj.core.api.Assertions.within;

import io.fairlead.solver.CsrMatrix;
import io.fairlead.solver.NotPositiveDefiniteException;
import io.fairlead.solver.Poisson;
import java.util.Arrays;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class MultigridTest {
  private static Hierarchy setUp(CsrMatrix a) {
    return Multigrid.setUp(a, Multigrid.Options.DEFAULT, Parallel.SEQUENTIAL);
  }

  private static double dot(double[] u, double[] v) {
    double sum = 0;
    for (int i = 0; i < u.length; i++) {
      sum += u[i] * v[i];
    }
    return sum;
  }

  private static ReferenceSolver.Result solve(CsrMatrix a, Hierarchy hierarchy, double[] b) {
    return new ReferenceSolver(
            a, ReferenceSolver.multigrid(hierarchy, Parallel.SEQUENTIAL), Parallel.SEQUENTIAL)
        .solve(b, new double[a.rows()], 1e-8, 200);
  }

  private static void requireSolves(CsrMatrix a, Hierarchy hierarchy, int most) {
    double[] b = RandomMatrices.vector(a.rows(), 77);
    ReferenceSolver.Result result = solve(a, hierarchy, b);
    assertThat(result.converged()).isTrue();
    assertThat(result.iterations()).isLessThanOrEqualTo(most);
    double[] ax = new double[a.rows()];
    a.multiply(result.x(), ax);
    for (int i = 0; i < b.length; i++) {
      ax[i] -= b[i];
    }
    assertThat(Math.sqrt(dot(ax, ax) / dot(b, b))).isLessThanOrEqualTo(1e-8);
  }

  @ParameterizedTest
  @ValueSource(ints = {3, 20, 40})
  void poissonConvergesAlikeOnAllSizes(int n) {
    CsrMatrix a = Poisson.grid3d(n);
    requireSolves(a, setUp(a), 20);
  }

  @Test
  void randomNetworksAreSolved() {
    for (int seed = 0; seed < 12; seed++) {
      CsrMatrix a = RandomMatrices.laplacian(3000 + 100 * seed, 1 + seed % 4, 1e-3, seed);
      requireSolves(a, setUp(a), 60);
    }
  }

  @Test
  void everyCoarseOperatorIsTheGalerkinProductAndSymmetric() {
    CsrMatrix a = RandomMatrices.laplacian(5000, 2, 1e-2, 8);
    Hierarchy hierarchy = setUp(a);
    assertThat(hierarchy.levels().size()).isGreaterThan(1);
    for (int l = 0; l + 1 < hierarchy.levels().size(); l++) {
      Level fine = hierarchy.levels().get(l);
      CsrMatrix coarse = hierarchy.levels().get(l + 1).a();
      Level.Transfer transfer = fine.coarser();
      assertThat(transfer).isNotNull();
      requireTransposed(transfer.p(), transfer.r());
      requireGalerkin(fine.a(), transfer, coarse, l);
      double scale = Arrays.stream(coarse.diagonal()).max().orElseThrow();
      for (int i = 0; i < coarse.rows(); i++) {
        for (int k = coarse.rowPtr()[i]; k < coarse.rowPtr()[i + 1]; k++) {
          double mirrored = coarse.get(coarse.colIdx()[k], i);
          assertThat(mirrored).isCloseTo(coarse.values()[k], within(1e-13 * scale));
        }
      }
    }
  }

  private static void requireTransposed(CsrMatrix p, CsrMatrix r) {
    assertThat(r.entries()).isEqualTo(p.entries());
    for (int i = 0; i < p.rows(); i++) {
      for (int k = p.rowPtr()[i]; k < p.rowPtr()[i + 1]; k++) {
        assertThat(r.get(p.colIdx()[k], i)).isEqualTo(p.values()[k]);
      }
    }
  }

  private static void requireGalerkin(
      CsrMatrix a, Level.Transfer transfer, CsrMatrix coarse, int seed) {
    double[] x = RandomMatrices.vector(coarse.rows(), seed);
    double[] px = new double[a.rows()];
    double[] apx = new double[a.rows()];
    double[] rapx = new double[coarse.rows()];
    double[] cx = new double[coarse.rows()];
    transfer.p().multiply(x, px);
    a.multiply(px, apx);
    transfer.r().multiply(apx, rapx);
    coarse.multiply(x, cx);
    double scale = Math.sqrt(dot(cx, cx));
    assertThat(cx).containsExactly(rapx, within(1e-12 * scale));
  }

  /** Where A·1 = 0 in the interior, smoothing keeps P · coarse = 1 there. */
  @Test
  void theConstantStaysInTheCoarseRange() {
    CsrMatrix a = RandomMatrices.laplacian(4000, 3, 0.0, 21);
    double[] one = new double[a.rows()];
    Arrays.fill(one, 1.0);
    int[] rows = new int[a.rows() + 1];
    for (int i = 0; i < rows.length; i++) {
      rows[i] = i;
    }
    Tentative tentative =
        Tentative.of(Aggregation.of(NodeGraph.of(a, rows, 0.08)), rows, new double[][] {one});
    CsrMatrix withMass = RandomMatrices.laplacian(4000, 3, 1e-9, 21);
    Level.Transfer transfer = setUp(withMass).levels().get(0).coarser();
    assertThat(transfer).isNotNull();
    double[] back = new double[a.rows()];
    transfer.p().multiply(tentative.coarse()[0], back);
    assertThat(back).containsExactly(one, within(1e-7));
  }

  @Test
  void threadsDoNotChangeABit() {
    CsrMatrix a = RandomMatrices.laplacian(30_000, 2, 1e-3, 30);
    Hierarchy alone = setUp(a);
    double[] b = RandomMatrices.vector(a.rows(), 5);
    double[] x = solve(a, alone, b).x();
    for (int threads : new int[] {2, 3, 7}) {
      try (TestThreads parallel = new TestThreads(threads)) {
        Hierarchy together = Multigrid.setUp(a, Multigrid.Options.DEFAULT, parallel);
        double[] same =
            new ReferenceSolver(a, ReferenceSolver.multigrid(together, parallel), parallel)
                .solve(b, new double[a.rows()], 1e-8, 200)
                .x();
        assertThat(Arrays.equals(same, x)).isTrue();
      }
    }
  }

  @Test
  void diagonalMatricesNeedOneIteration() {
    int n = 5000;
    int[] ptr = new int[n + 1];
    int[] idx = new int[n];
    double[] val = new double[n];
    for (int i = 0; i < n; i++) {
      ptr[i + 1] = i + 1;
      idx[i] = i;
      val[i] = 1 + i % 17;
    }
    CsrMatrix a = new CsrMatrix(n, n, ptr, idx, val);
    Hierarchy hierarchy = setUp(a);
    assertThat(hierarchy.levels()).hasSize(1);
    assertThat(hierarchy.coarse()).isNull();
    requireSolves(a, hierarchy, 2);
  }

  @Test
  void boundaryRowsAndSeparatePartsAreSolved() {
    CsrMatrix inner = Poisson.grid2d(40);
    int n = inner.rows();
    int total = 2 * n + 100;
    int[] ptr = new int[total + 1];
    int[] idx = new int[2 * inner.entries() + 100];
    double[] val = new double[idx.length];
    int length = 0;
    for (int i = 0; i < total; i++) {
      boolean alone = i >= 2 * n;
      int from = alone ? 0 : inner.rowPtr()[i % n];
      int to = alone ? 1 : inner.rowPtr()[i % n + 1];
      for (int k = from; k < to; k++) {
        idx[length] = alone ? i : inner.colIdx()[k] + i / n * n;
        val[length++] = alone ? 1e6 : inner.values()[k];
      }
      ptr[i + 1] = length;
    }
    CsrMatrix a = new CsrMatrix(total, total, ptr, idx, val);
    Hierarchy hierarchy = setUp(a);
    requireSolves(a, hierarchy, 25);
    Level.Transfer transfer = hierarchy.levels().get(0).coarser();
    assertThat(transfer).isNotNull();
    for (int i = 2 * n; i < total; i++) {
      assertThat(transfer.p().rowPtr()[i + 1]).isEqualTo(transfer.p().rowPtr()[i]);
    }
  }

  @Test
  void severalNearNullVectorsServeASystemOfEquations() {
    // Two fields on each point, coupled within the point: 2 x 2 blocks.
    CsrMatrix one = Poisson.grid2d(30);
    double[][] block = {{2, 0.9}, {0.9, 1}};
    int n = one.rows();
    int[] ptr = new int[2 * n + 1];
    int[] idx = new int[4 * one.entries()];
    double[] val = new double[idx.length];
    int length = 0;
    for (int i = 0; i < 2 * n; i++) {
      for (int k = one.rowPtr()[i / 2]; k < one.rowPtr()[i / 2 + 1]; k++) {
        for (int c = 0; c < 2; c++) {
          idx[length] = 2 * one.colIdx()[k] + c;
          val[length++] = one.values()[k] * block[i % 2][c];
        }
      }
      ptr[i + 1] = length;
    }
    CsrMatrix a = new CsrMatrix(2 * n, 2 * n, ptr, idx, val);
    double[][] fields = new double[2][2 * n];
    for (int i = 0; i < 2 * n; i++) {
      fields[i % 2][i] = 1;
    }
    Multigrid.Options options = Multigrid.Options.DEFAULT.withNearNullSpace(fields, 2);
    Hierarchy hierarchy = Multigrid.setUp(a, options, Parallel.SEQUENTIAL);
    assertThat(hierarchy.levels().size()).isGreaterThan(1);
    assertThat(hierarchy.levels().get(1).rows() % 2).isZero();
    requireSolves(a, hierarchy, 30);
  }

  @Test
  void coarseRowsFollowTheOrderOfTheirRoots() {
    Hierarchy hierarchy = setUp(Poisson.grid3d(25));
    for (Level level : hierarchy.levels()) {
      if (level.coarser() != null) {
        assertThat(level.coarser().rootRow()).isSorted();
        assertThat(level.coarser().rootRow()).hasSize(level.coarser().p().cols());
      }
    }
    assertThat(hierarchy.operatorComplexity()).isBetween(1.0, 2.0);
    assertThat(hierarchy.gridComplexity()).isBetween(1.0, 1.5);
    assertThat(hierarchy.describe()).contains("level 0: 15,625 rows").contains("complexity");
  }

  @Test
  void indefiniteMatricesAreRefused() {
    CsrMatrix a = Poisson.grid2d(12);
    double[] shifted = a.values().clone();
    for (int i = 0; i < a.rows(); i++) {
      shifted[a.find(i, i)] -= 1.0;
    }
    CsrMatrix indefinite = new CsrMatrix(a.rows(), a.cols(), a.rowPtr(), a.colIdx(), shifted);
    assertThatThrownBy(() -> setUp(indefinite))
        .isInstanceOf(NotPositiveDefiniteException.class)
        .hasMessageContaining("not positive definite: pivot")
        .hasMessageContaining("expected all pivots to be positive");
    CsrMatrix singular = RandomMatrices.laplacian(200, 2, 0.0, 1);
    assertThatThrownBy(() -> setUp(singular)).isInstanceOf(NotPositiveDefiniteException.class);
    double[] negative = a.values().clone();
    negative[a.find(5, 5)] = -4;
    assertThatThrownBy(
            () -> setUp(new CsrMatrix(a.rows(), a.cols(), a.rowPtr(), a.colIdx(), negative)))
        .hasMessage(
            "the matrix is not positive definite: diagonal entry 6 is -4.0; expected all to be"
                + " positive");
  }

  @Test
  void misuseIsNamed() {
    CsrMatrix a = Poisson.grid2d(4);
    assertThatThrownBy(
            () ->
                Multigrid.setUp(
                    RandomMatrices.sparse(3, 4, 1, 1),
                    Multigrid.Options.DEFAULT,
                    Parallel.SEQUENTIAL))
        .hasMessage("a matrix of 3 x 4: expected square, with at least a row");
    assertThatThrownBy(
            () ->
                Multigrid.setUp(
                    a,
                    Multigrid.Options.DEFAULT.withNearNullSpace(new double[1][3], 1),
                    Parallel.SEQUENTIAL))
        .hasMessage("a near-null vector of 3 entries; expected 16");
    assertThatThrownBy(
            () ->
                Multigrid.setUp(
                    a, Multigrid.Options.DEFAULT.withNearNullSpace(null, 3), Parallel.SEQUENTIAL))
        .hasMessage("16 rows in points of 3: expected a divisor of the rows");
  }

  /** CG needs a symmetric positive preconditioner: u·Mv = v·Mu and u·Mu > 0. */
  @Test
  void theCycleIsSymmetricAndPositive() {
    CsrMatrix a = RandomMatrices.laplacian(4000, 3, 1e-3, 17);
    Hierarchy hierarchy = setUp(a);
    ReferenceSolver.Preconditioner cycle =
        ReferenceSolver.multigrid(hierarchy, Parallel.SEQUENTIAL);
    double[] mu = new double[a.rows()];
    double[] mv = new double[a.rows()];
    for (int seed = 0; seed < 5; seed++) {
      double[] u = RandomMatrices.vector(a.rows(), seed);
      double[] v = RandomMatrices.vector(a.rows(), 100 + seed);
      cycle.apply(u, mu);
      cycle.apply(v, mv);
      double bound = 1e-11 * Math.sqrt(dot(u, mu) * dot(v, mv));
      assertThat(dot(u, mv)).isCloseTo(dot(v, mu), within(bound));
      assertThat(dot(u, mu)).isPositive();
    }
  }

  @Test
  void simplerPreconditionersNeedMoreIterations() {
    CsrMatrix a = RandomMatrices.laplacian(4000, 2, 1e-3, 41);
    double[] b = RandomMatrices.vector(a.rows(), 1);
    double[] x0 = new double[a.rows()];
    Parallel alone = Parallel.SEQUENTIAL;
    ReferenceSolver.Result none =
        new ReferenceSolver(a, ReferenceSolver.none(), alone).solve(b, x0, 1e-8, 5000);
    ReferenceSolver.Result jacobi =
        new ReferenceSolver(a, ReferenceSolver.jacobi(a), alone).solve(b, x0, 1e-8, 5000);
    ReferenceSolver.Result multigrid = solve(a, setUp(a), b);
    assertThat(none.converged()).isTrue();
    assertThat(jacobi.converged()).isTrue();
    assertThat(jacobi.iterations()).isLessThan(none.iterations());
    assertThat(multigrid.iterations()).isLessThan(jacobi.iterations() / 5);
  }

  @Test
  void warmingUpStopsWhenTold() {
    assertThat(WarmUp.setUp(5, () -> true)).isZero();
    int[] asked = {0};
    assertThat(WarmUp.setUp(5, () -> ++asked[0] > 3)).isEqualTo(3);
    assertThat(WarmUp.setUp(2, () -> false)).isEqualTo(2);
  }
}
