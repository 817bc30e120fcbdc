package io.fairlead.solver;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.within;

import io.fairlead.runtime.Fairlead;
import java.util.Arrays;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Real systems on the device, against solutions that a direct solver gave. */
class DragonSolveTest {
  @ParameterizedTest
  @CsvSource({
    "dragon_res4.mtx, dragon_res4_b.mtx, 25, 5.984640572092e+01, -4.294301794373e+03",
    "dragon_res3.mtx, dragon_res3_b.mtx, 30, 1.301867233563e+02, -1.889092700601e+04",
    "dragon_res2.mtx.gz, dragon_res2_b.mtx.gz, 40, 3.335272054468e+02, -8.204110349927e+04"
  })
  void agreesWithTheDirectSolve(String matrix, String rhs, int most, double norm, double sum) {
    CsrMatrix a = MatrixMarket.readMatrix(TestData.beside(matrix)).matrix();
    double[] b =
        MatrixMarket.readColumns(
                TestData.beside(rhs), a.rows(), "the right-hand side", ReadProgress.SILENT)
            .column(0);
    try (Fairlead fairlead = SolverFixture.open()) {
      int alone = 0;
      for (int ranks : new int[] {1, 2, 4}) {
        SolverOptions options = SolverOptions.DEFAULT.withRanks(ranks);
        try (SparseSolver solver = SparseSolver.setup(fairlead, a, options)) {
          Solution solution = solver.solve(b);
          SolverFixture.assertSolved(a, solution, b, 1e-8);
          int iterations = solution.report().iterations();
          alone = ranks == 1 ? iterations : alone;
          assertThat(iterations).isLessThanOrEqualTo(most);
          assertThat((double) iterations).isBetween(0.75 * alone, 1.25 * alone);
          assertThat(SolverFixture.norm(solution.x())).isCloseTo(norm, within(1e-6 * norm));
          assertThat(Arrays.stream(solution.x()).sum())
              .isCloseTo(sum, within(1e-6 * Math.abs(sum)));
        }
      }
    }
  }
}
