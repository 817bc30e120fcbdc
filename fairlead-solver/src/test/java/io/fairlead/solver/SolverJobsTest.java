package io.fairlead.solver;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.OutOfDeviceMemoryException;
import io.fairlead.memory.MemoryStats;
import io.fairlead.runtime.Fairlead;
import io.fairlead.runtime.FairleadConfig;
import io.fairlead.task.TaskScope;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Many solves at once on a device that has no room for all of them. */
class SolverJobsTest {
  private static final int JOBS = 24;
  private static final CsrMatrix MATRIX = Poisson.grid2d(60);

  /** Room for what the solver holds and a quarter of the jobs. */
  private static FairleadConfig tight(int ranks) {
    try (Fairlead fairlead = SolverFixture.open();
        SparseSolver solver = setup(fairlead, ranks)) {
      SetupReport report = solver.setupReport();
      long allocations = 64 * 1024; // every buffer is rounded up
      return SolverFixture.host()
          .withDeviceMemory(report.residentBytes() + allocations + JOBS / 4 * report.solveBytes());
    }
  }

  private static SparseSolver setup(Fairlead fairlead, int ranks) {
    return SparseSolver.setup(fairlead, MATRIX, SolverOptions.DEFAULT.withRanks(ranks));
  }

  private static double[] rhs(int job) {
    return SolverFixture.random(MATRIX.rows(), 100 + job);
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2})
  void allAreRightAndTheLimitHolds(int ranks) {
    FairleadConfig config = tight(ranks);
    try (Fairlead fairlead = Fairlead.open(config);
        SparseSolver solver = setup(fairlead, ranks);
        TaskScope<Solution> scope = fairlead.scope()) {
      for (int k = 0; k < JOBS; k++) {
        double[] b = rhs(k);
        scope.fork(() -> solver.solve(b));
      }
      List<Solution> solutions = scope.join();
      for (int k = 0; k < JOBS; k++) {
        SolverFixture.assertSolved(MATRIX, solutions.get(k), rhs(k), 1e-8);
      }
      MemoryStats memory = fairlead.device().memory();
      assertThat(memory.limit()).isEqualTo(config.deviceMemory());
      assertThat(memory.peak())
          .isLessThanOrEqualTo(config.deviceMemory())
          .isGreaterThan(solver.setupReport().residentBytes() + 2 * solver.requiredBytes());
    }
  }

  @Test
  void threadsThatNeverEnteredMaySolveToo() throws Exception {
    try (Fairlead fairlead = Fairlead.open(tight(1));
        SparseSolver solver = setup(fairlead, 1);
        ExecutorService threads = Executors.newFixedThreadPool(JOBS)) {
      List<Future<Solution>> futures =
          IntStream.range(0, JOBS)
              .mapToObj(k -> threads.submit(() -> solver.solve(rhs(k))))
              .toList();
      for (int k = 0; k < JOBS; k++) {
        SolverFixture.assertSolved(MATRIX, futures.get(k).get(), rhs(k), 1e-8);
      }
    }
  }

  @Test
  void aSetupThatCanNeverFitIsRefusedAndLeavesNothing() {
    FairleadConfig config = SolverFixture.host().withDeviceMemory(100_000);
    try (Fairlead fairlead = Fairlead.open(config)) {
      assertThatThrownBy(() -> setup(fairlead, 1)).isInstanceOf(OutOfDeviceMemoryException.class);
      MemoryStats memory = fairlead.device().memory();
      assertThat(memory.inUse() - memory.pendingFree()).isZero();
    }
  }
}
