package io.fairlead.cli;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.comm.Launch;
import io.fairlead.comm.Launch.Family;
import java.util.Optional;
import org.junit.jupiter.api.Test;

/** Which rank of the command a process is. */
class LaunchedRanksTest {
  private static final Optional<Launch> BY_ITSELF = Optional.empty();

  private static Optional<Launch> launched(int rank) {
    return Optional.of(new Launch("mpirun", Family.MPICH, rank, 4, 0, 1));
  }

  @Test
  void aProcessByItselfHasItsRanksInside() {
    assertThat(LaunchedRanks.of("auto", BY_ITSELF)).isEqualTo(new LaunchedRanks(0, 1, false));
  }

  @Test
  void whoAsksForMpiIsARankOfOne() {
    assertThat(LaunchedRanks.of("mpi", BY_ITSELF)).isEqualTo(new LaunchedRanks(0, 1, true));
  }

  @Test
  void onlyTheFirstPrints() {
    assertThat(LaunchedRanks.of("auto", launched(3))).isEqualTo(new LaunchedRanks(3, 4, true));
    assertThat(LaunchedRanks.of("auto", launched(3)).isFirst()).isFalse();
    assertThat(LaunchedRanks.of("mpi", launched(0)).isFirst()).isTrue();
  }

  /** Each is on its own then, and prints. */
  @Test
  void inProcessMeansItAlsoUnderALauncher() {
    assertThat(LaunchedRanks.of("in-process", launched(3)))
        .isEqualTo(new LaunchedRanks(0, 1, false));
  }
}
