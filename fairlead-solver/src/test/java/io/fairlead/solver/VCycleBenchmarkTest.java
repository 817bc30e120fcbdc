package io.fairlead.solver;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.within;

import io.fairlead.runtime.Fairlead;
import io.fairlead.task.WaitMode;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** V-cycles alone: they converge, alike on any ranks and in any mode. */
class VCycleBenchmarkTest {
  private static final CsrMatrix MATRIX = Poisson.grid3d(24);

  private static VCycleBenchmark.Result run(WaitMode mode, int ranks) {
    try (Fairlead fairlead = SolverFixture.open(mode);
        VCycleBenchmark benchmark = VCycleBenchmark.setup(fairlead, MATRIX, ranks)) {
      return benchmark.run(8);
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 4})
  void convergesTheSameInEveryMode(int ranks) {
    VCycleBenchmark.Result first = run(WaitMode.NONBLOCKING, ranks);
    assertThat(first.relativeResiduals()).hasSize(8);
    for (int k = 1; k < 8; k++) {
      assertThat(first.relativeResiduals()[k]).isLessThan(0.6 * first.relativeResiduals()[k - 1]);
    }
    assertThat(first.messages() > 0).isEqualTo(ranks > 1);
    for (WaitMode mode : new WaitMode[] {WaitMode.BLOCKING, WaitMode.SPIN}) {
      VCycleBenchmark.Result other = run(mode, ranks);
      assertThat(other.relativeResiduals()).containsExactly(first.relativeResiduals());
      assertThat(other.messages()).isEqualTo(first.messages());
    }
  }

  @Test
  void oneSetupServesAllRanksAndModes() {
    List<Integer> ranks = List.of(1, 2);
    try (Fairlead fairlead = SolverFixture.open(WaitMode.NONBLOCKING)) {
      List<VCycleBenchmark> benchmarks = VCycleBenchmark.setup(fairlead, MATRIX, ranks);
      for (int k = 0; k < ranks.size(); k++) {
        double[] expected = run(WaitMode.NONBLOCKING, ranks.get(k)).relativeResiduals();
        try (VCycleBenchmark benchmark = benchmarks.get(k)) {
          for (WaitMode mode : WaitMode.values()) {
            assertThat(benchmark.run(8, mode).relativeResiduals()).containsExactly(expected);
          }
        }
      }
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {2, 4})
  void ranksChangeNoMoreThanRounding(int ranks) {
    double[] alone = run(WaitMode.NONBLOCKING, 1).relativeResiduals();
    double[] shared = run(WaitMode.NONBLOCKING, ranks).relativeResiduals();
    assertThat(shared).containsExactly(alone, within(1e-10));
  }
}
