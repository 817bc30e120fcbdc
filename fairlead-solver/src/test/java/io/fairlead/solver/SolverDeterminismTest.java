package io.fairlead.solver;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.runtime.Fairlead;
import io.fairlead.runtime.FairleadConfig;
import io.fairlead.task.Fork;
import io.fairlead.task.TaskScope;
import io.fairlead.task.WaitMode;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The same bits, whatever runs beside it and however it waits. */
class SolverDeterminismTest {
  private static final CsrMatrix MATRIX = Poisson.grid3d(18);
  private static final double[] B = SolverFixture.random(MATRIX.rows(), 21);

  private static List<double[]> solve(FairleadConfig config, int ranks, int jobs) {
    try (Fairlead fairlead = Fairlead.open(config);
        SparseSolver solver =
            SparseSolver.setup(fairlead, MATRIX, SolverOptions.DEFAULT.withRanks(ranks));
        TaskScope<Solution> scope = fairlead.scope()) {
      List<Fork<Solution>> forks = new ArrayList<>();
      for (int k = 0; k < jobs; k++) {
        forks.add(scope.fork(() -> solver.solve(B)));
      }
      scope.join();
      return forks.stream().map(fork -> fork.get().x()).toList();
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 4})
  void isTheSameInEveryModeWithAnyWorkersAndJobs(int ranks) {
    double[] expected = solve(SolverFixture.host(), ranks, 1).getFirst();
    for (WaitMode mode : WaitMode.values()) {
      for (int workers : new int[] {1, 2, 3}) {
        FairleadConfig config = SolverFixture.host().withWaitMode(mode).withHostWorkers(workers);
        for (double[] x : solve(config, ranks, workers * 2)) {
          assertThat(x)
              .as("%s, %s workers, %s ranks", mode, workers, ranks)
              .containsExactly(expected);
        }
      }
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2})
  void isTheSameAHundredTimes(int ranks) {
    CsrMatrix a = Poisson.grid2d(30);
    double[] b = SolverFixture.random(a.rows(), 22);
    try (Fairlead fairlead = SolverFixture.open();
        SparseSolver solver =
            SparseSolver.setup(fairlead, a, SolverOptions.DEFAULT.withRanks(ranks))) {
      double[] expected = solver.solve(b).x();
      for (int k = 1; k < 100; k++) {
        assertThat(solver.solve(b).x()).containsExactly(expected);
      }
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {2, 3})
  void ranksOnSeveralDevicesGiveTheSameAsOnOne(int ranks) {
    double[] expected = solve(SolverFixture.host(), ranks, 1).getFirst();
    double[] spread = solve(SolverFixture.host().withHostDevices(ranks), ranks, 1).getFirst();
    assertThat(spread).containsExactly(expected);
  }
}
