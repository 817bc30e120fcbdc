package io.fairlead.solver;

import static io.fairlead.solver.SolverFixture.assertSolved;
import static io.fairlead.solver.SolverFixture.diagonal;
import static io.fairlead.solver.SolverFixture.ones;
import static io.fairlead.solver.SolverFixture.random;
import static io.fairlead.solver.SolverFixture.times;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.memory.MemoryStats;
import io.fairlead.runtime.Fairlead;
import java.util.ArrayList;
import java.util.List;
import org.assertj.core.data.Offset;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

/** What a solve gives, on the host device. */
class SparseSolverTest {
  private static final SolverOptions DEFAULT = SolverOptions.DEFAULT;

  private final Fairlead fairlead = SolverFixture.open();

  @AfterEach
  void nothingIsLeft() {
    MemoryStats memory = fairlead.device().memory();
    fairlead.close();
    assertThat(memory.inUse() - memory.pendingFree())
        .as("device memory that nobody freed")
        .isZero();
  }

  private Solution solve(CsrMatrix a, double[] b, SolverOptions options) {
    try (SparseSolver solver = SparseSolver.setup(fairlead, a, options)) {
      return solver.solve(b);
    }
  }

  @ParameterizedTest
  @CsvSource({"AMG,1", "AMG,2", "AMG,4", "JACOBI,1", "JACOBI,3", "NONE,1", "NONE,2"})
  void solvesPoisson(Preconditioner preconditioner, int ranks) {
    CsrMatrix a = Poisson.grid3d(14);
    double[] b = random(a.rows(), 1);
    Solution solution = solve(a, b, DEFAULT.withPreconditioner(preconditioner).withRanks(ranks));
    assertSolved(a, solution, b, 1e-8);
    assertThat(solution.report().convergenceFactor()).isBetween(1e-6, 0.999);
  }

  /** 27,000 rows: several levels are distributed, then one is gathered. */
  @Test
  void ranksHardlyChangeTheIterations() {
    CsrMatrix a = Poisson.grid3d(30);
    double[] b = random(a.rows(), 2);
    int alone = solve(a, b, DEFAULT).report().iterations();
    assertThat(alone).isLessThan(20);
    for (int ranks : new int[] {2, 4}) {
      Solution shared = solve(a, b, DEFAULT.withRanks(ranks));
      assertSolved(a, shared, b, 1e-8);
      assertThat(shared.report().iterations())
          .isBetween((int) Math.floor(0.75 * alone), (int) Math.ceil(1.25 * alone));
      assertThat(shared.report().messages()).isPositive();
    }
  }

  @Test
  void preparingEndsWhenToldAndLeavesNothing() {
    long before = fairlead.device().context().stats().launches();
    SparseSolver.prepare(fairlead, () -> true);
    assertThat(fairlead.device().context().stats().launches()).isEqualTo(before);
    int[] asked = {0};
    SparseSolver.prepare(fairlead, () -> ++asked[0] > 4);
    assertThat(fairlead.device().context().stats().launches()).isGreaterThan(before);
    MemoryStats memory = fairlead.device().memory();
    assertThat(memory.inUse() - memory.pendingFree()).isZero();
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 5})
  void solvesOneUnknown(int ranks) {
    Solution solution = solve(diagonal(4.0), new double[] {8.0}, DEFAULT.withRanks(ranks));
    assertThat(solution.x()).containsExactly(2.0);
  }

  @ParameterizedTest
  @EnumSource(Preconditioner.class)
  void solvesFewerUnknownsThanRanks(Preconditioner preconditioner) {
    CsrMatrix a = Poisson.grid2d(2);
    double[] b = {1, 2, 3, 4};
    Solution solution = solve(a, b, DEFAULT.withRanks(6).withPreconditioner(preconditioner));
    assertSolved(a, solution, b, 1e-8);
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 3})
  void solvesADiagonalMatrix(int ranks) {
    double[] values = random(3000, 3);
    for (int i = 0; i < values.length; i++) {
      values[i] = Math.exp(6 * values[i]);
    }
    double[] b = random(values.length, 4);
    CsrMatrix a = diagonal(values);
    assertSolved(a, solve(a, b, DEFAULT.withRanks(ranks)), b, 1e-8);
    Solution jacobi =
        solve(a, b, DEFAULT.withRanks(ranks).withPreconditioner(Preconditioner.JACOBI));
    // The second only if the first one's residual, far below rounding of the old, looked too large.
    assertThat(jacobi.report().iterations()).isBetween(1, 2);
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2})
  void solvesADisconnectedGraph(int ranks) {
    CsrMatrix a = SolverFixture.copies(Poisson.grid2d(23), 5);
    double[] b = random(a.rows(), 5);
    assertSolved(a, solve(a, b, DEFAULT.withRanks(ranks)), b, 1e-8);
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2})
  void solvesThePowerSystem(int ranks) {
    CsrMatrix a = TestData.bus1138();
    Solution solution = solve(a, times(a, ones(a.rows())), DEFAULT.withRanks(ranks));
    assertThat(solution.report().converged()).isTrue();
    for (double each : solution.x()) {
      assertThat(each).isCloseTo(1.0, Offset.offset(1e-4));
    }
  }

  @Test
  void solvesForManyRightHandSides() {
    CsrMatrix a = Poisson.grid2d(40);
    try (SparseSolver solver = SparseSolver.setup(fairlead, a, DEFAULT)) {
      for (int k = 0; k < 5; k++) {
        double[] b = random(a.rows(), 10 + k);
        assertSolved(a, solver.solve(b), b, 1e-8);
      }
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2})
  void startsFromAGuess(int ranks) {
    CsrMatrix a = Poisson.grid2d(40);
    double[] b = random(a.rows(), 6);
    try (SparseSolver solver = SparseSolver.setup(fairlead, a, DEFAULT.withRanks(ranks))) {
      Solution first = solver.solve(b);
      Solution again = solver.solve(b, first.x());
      assertThat(again.report().iterations()).isZero();
      assertThat(again.x()).containsExactly(first.x());
      double[] near = first.x().clone();
      near[7] += 1e-3;
      Solution third = solver.solve(b, near);
      assertSolved(a, third, b, 1e-8);
      assertThat(third.report().iterations()).isBetween(1, first.report().iterations() - 1);
    }
  }

  @Test
  void aZeroRightHandSideHasTheZeroSolution() {
    CsrMatrix a = Poisson.grid2d(9);
    try (SparseSolver solver = SparseSolver.setup(fairlead, a, DEFAULT)) {
      Solution solution = solver.solve(new double[a.rows()], ones(a.rows()));
      assertThat(solution.x()).containsOnly(0.0);
      assertThat(solution.report().converged()).isTrue();
    }
  }

  @ParameterizedTest
  @ValueSource(doubles = {1e-300, 1e-170, 1e200, 1e300})
  void theSizeOfTheRightHandSideDoesNotMatter(double size) {
    CsrMatrix a = Poisson.grid2d(12);
    double[] b = random(a.rows(), 7);
    double[] scaled = b.clone();
    for (int i = 0; i < b.length; i++) {
      scaled[i] *= size;
    }
    double[] expected = solve(a, b, DEFAULT).x();
    Solution solution = solve(a, scaled, DEFAULT);
    assertThat(solution.report().converged()).isTrue();
    for (int i = 0; i < b.length; i++) {
      assertThat(solution.x()[i] / size).isCloseTo(expected[i], Offset.offset(1e-6));
    }
  }

  @Test
  void representsTheNearNullSpace() {
    CsrMatrix a = SolverFixture.blocks(Poisson.grid2d(40), 2);
    double[][] vectors = new double[2][a.rows()];
    for (int i = 0; i < a.rows(); i++) {
      vectors[i % 2][i] = 1.0;
    }
    double[] b = random(a.rows(), 8);
    for (int ranks : new int[] {1, 2}) {
      Solution solution = solve(a, b, DEFAULT.withNearNullSpace(vectors, 2).withRanks(ranks));
      assertSolved(a, solution, b, 1e-8);
      assertThat(solution.report().iterations()).isLessThan(25);
    }
  }

  @Test
  void solvesForAnOperatorOnTheHost() {
    CsrMatrix a = Poisson.grid2d(30);
    CsrMatrix near = SolverFixture.shifted(a, 0.1);
    Operator operator = Operator.onHost(a.rows(), a::multiply);
    double[] b = random(a.rows(), 9);
    for (Preconditioner preconditioner : Preconditioner.values()) {
      SolverOptions options = DEFAULT.withPreconditioner(preconditioner);
      try (SparseSolver solver = SparseSolver.setup(fairlead, operator, near, options)) {
        assertSolved(a, solver.solve(b), b, 1e-8);
        assertSolved(a, solver.solve(b, random(a.rows(), 3)), b, 1e-8);
      }
    }
  }

  @Test
  void solvesForAnOperatorOnTheDevice() {
    int rows = 500;
    try (LaplaceOperator operator = new LaplaceOperator(fairlead.device(), rows);
        SparseSolver solver =
            SparseSolver.setup(
                fairlead, operator, null, DEFAULT.withPreconditioner(Preconditioner.NONE))) {
      double[] b = random(rows, 11);
      CsrMatrix a = LaplaceOperator.matrix(rows);
      assertSolved(a, solver.solve(b), b, 1e-8);
    }
  }

  @Test
  void refusesAnOperatorOnSeveralRanksOrWithoutItsMatrix() {
    Operator operator = Operator.onHost(4, (x, y) -> System.arraycopy(x, 0, y, 0, 4));
    assertThatThrownBy(
            () -> SparseSolver.setup(fairlead, operator, diagonal(ones(4)), DEFAULT.withRanks(2)))
        .isInstanceOf(IllegalArgumentException.class)
        .hasMessageContaining("1 rank");
    assertThatThrownBy(() -> SparseSolver.setup(fairlead, operator, null, DEFAULT))
        .isInstanceOf(IllegalArgumentException.class)
        .hasMessageContaining("NONE");
    assertThatThrownBy(() -> SparseSolver.setup(fairlead, operator, diagonal(ones(5)), DEFAULT))
        .isInstanceOf(IllegalArgumentException.class)
        .hasMessageContaining("4 rows");
  }

  @ParameterizedTest
  @CsvSource({"JACOBI,1", "JACOBI,2", "NONE,1", "NONE,2"})
  void saysWhereTheMatrixIsNotPositiveDefinite(Preconditioner preconditioner, int ranks) {
    CsrMatrix a = SolverFixture.shifted(Poisson.grid2d(20), -1.0);
    assertThatThrownBy(
            () ->
                solve(
                    a,
                    random(a.rows(), 12),
                    DEFAULT.withPreconditioner(preconditioner).withRanks(ranks)))
        .isInstanceOfSatisfying(
            NotPositiveDefiniteException.class,
            e -> {
              assertThat(e.iteration()).isPositive();
              assertThat(e.value()).isNegative();
              assertThat(e).hasMessageContaining("in iteration " + e.iteration());
            });
  }

  @Test
  void anIndefiniteMatrixIsNeverSolvedByMultigridEither() {
    CsrMatrix a = SolverFixture.shifted(Poisson.grid2d(40), -1.0);
    assertThatThrownBy(() -> solve(a, random(a.rows(), 13), DEFAULT))
        .isInstanceOf(NotPositiveDefiniteException.class);
  }

  @Test
  void saysThatItDidNotConverge() {
    CsrMatrix a = Poisson.grid2d(40);
    double[] b = random(a.rows(), 14);
    Solution solution =
        solve(a, b, DEFAULT.withPreconditioner(Preconditioner.JACOBI).withMaxIterations(5));
    assertThat(solution.report().converged()).isFalse();
    assertThat(solution.report().iterations()).isEqualTo(5);
    assertThat(solution.report().relativeResidual())
        .isCloseTo(SolverFixture.relativeResidual(a, solution.x(), b), Offset.offset(1e-12));
    Solution none = solve(a, b, DEFAULT.withMaxIterations(0));
    assertThat(none.report().converged()).isFalse();
    assertThat(none.report().iterations()).isZero();
  }

  @Test
  void givesUpBelowWhatRoundingAllows() {
    CsrMatrix a = TestData.bus1138();
    double[] b = random(a.rows(), 15);
    Solution solution = solve(a, b, DEFAULT.withTolerance(1e-30));
    assertThat(solution.report().converged()).isFalse();
    assertThat(solution.report().iterations()).isLessThan(1000);
    assertThat(solution.report().relativeResidual()).isLessThan(1e-9);
  }

  @Test
  void tellsItsListener() {
    CsrMatrix a = Poisson.grid3d(12);
    List<Integer> rows = new ArrayList<>();
    List<Double> residuals = new ArrayList<>();
    SolveListener listener =
        new SolveListener() {
          @Override
          public void level(int level, int levelRows, long entries) {
            assertThat(level).isEqualTo(rows.size());
            rows.add(levelRows);
          }

          @Override
          public void iteration(int iteration, double relativeResidual) {
            residuals.add(relativeResidual);
            assertThat(iteration).isEqualTo(residuals.size());
          }
        };
    Solution solution = solve(a, random(a.rows(), 16), DEFAULT.withListener(listener));
    assertThat(rows).hasSize(solution.report().levels()).startsWith(a.rows());
    assertThat(residuals).hasSize(solution.report().iterations());
    assertThat(residuals.getLast()).isLessThanOrEqualTo(1e-8);
  }

  @Test
  void aListenerThatFailsEndsTheSolveWithItsException() {
    CsrMatrix a = Poisson.grid2d(20);
    for (int ranks : new int[] {1, 2}) {
      SolveListener listener =
          new SolveListener() {
            @Override
            public void iteration(int iteration, double relativeResidual) {
              throw new UnsupportedOperationException("enough");
            }
          };
      SolverOptions options = DEFAULT.withRanks(ranks).withListener(listener);
      assertThatThrownBy(() -> solve(a, ones(a.rows()), options))
          .isInstanceOf(UnsupportedOperationException.class)
          .hasMessage("enough");
    }
  }

  @Test
  void refusesWhatIsNotASystem() {
    CsrMatrix wide = new CsrMatrix(1, 2, new int[] {0, 1}, new int[] {0}, new double[] {1});
    CsrMatrix none = new CsrMatrix(0, 0, new int[] {0}, new int[0], new double[0]);
    for (CsrMatrix bad : List.of(wide, none)) {
      assertThatThrownBy(() -> SparseSolver.setup(fairlead, bad, DEFAULT))
          .isInstanceOf(IllegalArgumentException.class);
    }
    for (Preconditioner preconditioner : List.of(Preconditioner.AMG, Preconditioner.JACOBI)) {
      assertThatThrownBy(
              () ->
                  SparseSolver.setup(
                      fairlead, diagonal(1, -1), DEFAULT.withPreconditioner(preconditioner)))
          .isInstanceOf(NotPositiveDefiniteException.class)
          .hasMessageContaining("diagonal entry 2");
    }
  }

  @Test
  void refusesVectorsThatDoNotFit() {
    try (SparseSolver solver = SparseSolver.setup(fairlead, diagonal(1, 2), DEFAULT)) {
      assertThatThrownBy(() -> solver.solve(ones(3)))
          .isInstanceOf(IllegalArgumentException.class)
          .hasMessageContaining("right-hand side has 3 entries; expected 2");
      assertThatThrownBy(() -> solver.solve(new double[] {1, Double.NaN}))
          .isInstanceOf(IllegalArgumentException.class)
          .hasMessageContaining("entry 2 of the right-hand side is NaN");
      assertThatThrownBy(() -> solver.solve(ones(2), ones(1)))
          .isInstanceOf(IllegalArgumentException.class)
          .hasMessageContaining("initial guess");
    }
  }

  @Test
  void refusesToSolveAfterClose() {
    SparseSolver solver = SparseSolver.setup(fairlead, diagonal(1, 2), DEFAULT);
    solver.close();
    solver.close();
    assertThatThrownBy(() -> solver.solve(ones(2))).isInstanceOf(IllegalStateException.class);
  }
}
