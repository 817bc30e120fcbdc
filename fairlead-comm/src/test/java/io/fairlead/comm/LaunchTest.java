package io.fairlead.comm;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.comm.Launch.Family;
import java.util.HashMap;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** What launchers say in the environment, and what of it is believed. */
class LaunchTest {
  private static final Map<String, String> OPEN_MPI =
      Map.of(
          "OMPI_COMM_WORLD_RANK", "5",
          "OMPI_COMM_WORLD_SIZE", "8",
          "OMPI_COMM_WORLD_LOCAL_RANK", "1",
          "OMPI_COMM_WORLD_LOCAL_SIZE", "4");

  private static final Map<String, String> MPICH =
      Map.of("PMI_RANK", "2", "PMI_SIZE", "3", "MPI_LOCALRANKID", "0", "MPI_LOCALNRANKS", "1");

  private static final Map<String, String> SLURM =
      Map.of(
          "SLURM_STEP_ID", "0",
          "SLURM_PROCID", "6",
          "SLURM_STEP_NUM_TASKS", "8",
          "SLURM_LOCALID", "2",
          "SLURM_STEP_TASKS_PER_NODE", "4(x2)");

  private static Map<String, String> with(Map<String, String> words, String name, String value) {
    Map<String, String> changed = new HashMap<>(words);
    changed.put(name, value);
    return changed;
  }

  private static Map<String, String> without(Map<String, String> words, String name) {
    Map<String, String> changed = new HashMap<>(words);
    changed.remove(name);
    return changed;
  }

  @Test
  void nobodyLaunchedAProcessThatIsToldNothing() {
    assertThat(Launch.of(Map.of("PATH", "/bin", "HOME", "/root"))).isEmpty();
  }

  @Test
  void eachLauncherIsUnderstood() {
    assertThat(Launch.of(OPEN_MPI))
        .contains(new Launch("Open MPI's mpirun", Family.OPEN_MPI, 5, 8, 1, 4));
    assertThat(Launch.of(MPICH)).contains(new Launch("MPICH's mpiexec", Family.MPICH, 2, 3, 0, 1));
    assertThat(Launch.of(SLURM)).contains(new Launch("Slurm's srun", Family.ANY, 6, 8, 2, 4));
  }

  /** Slurm sets the names of Hydra for libraries of that family. */
  @Test
  void slurmIsNotTakenForHydra() {
    Map<String, String> both = new HashMap<>(MPICH);
    both.putAll(SLURM);
    assertThat(Launch.of(both).orElseThrow().launcher()).isEqualTo("Slurm's srun");
  }

  /** Within a batch job of Slurm, mpirun is the nearer one. */
  @Test
  void mpirunInsideASlurmJobIsMpirun() {
    Map<String, String> both = new HashMap<>(SLURM);
    both.putAll(OPEN_MPI);
    assertThat(Launch.of(both).orElseThrow().rank()).isEqualTo(5);
    assertThat(Launch.of(both).orElseThrow().family()).isEqualTo(Family.OPEN_MPI);
  }

  @Test
  void aBatchScriptIsOneProcess() {
    assertThat(Launch.of(with(SLURM, "SLURM_STEP_ID", "batch"))).isEmpty();
    assertThat(Launch.of(with(SLURM, "SLURM_STEP_ID", "4294967291"))).isEmpty();
    assertThat(Launch.of(without(SLURM, "SLURM_STEP_ID"))).isEmpty();
  }

  @Test
  void aRankWithoutASizeIsNone() {
    assertThat(Launch.of(without(OPEN_MPI, "OMPI_COMM_WORLD_SIZE"))).isEmpty();
    assertThat(Launch.of(with(OPEN_MPI, "OMPI_COMM_WORLD_RANK", "first"))).isEmpty();
    assertThat(Launch.of(with(OPEN_MPI, "OMPI_COMM_WORLD_RANK", ""))).isEmpty();
  }

  /** Without the local words a rank is alone on its host, as far as is known. */
  @Test
  void theLocalWordsMayBeMissing() {
    Launch launch =
        Launch.of(
                without(
                    without(OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_RANK"), "OMPI_COMM_WORLD_LOCAL_SIZE"))
            .orElseThrow();
    assertThat(launch.localRank()).isZero();
    assertThat(launch.localSize()).isEqualTo(1);
    assertThat(Launch.of(without(OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE")).orElseThrow().localSize())
        .as("at least as many as the local rank shows")
        .isEqualTo(2);
  }

  @Test
  void whatCannotBeIsRefused() {
    assertThatThrownBy(() -> Launch.of(with(OPEN_MPI, "OMPI_COMM_WORLD_RANK", "8")))
        .isInstanceOf(IllegalArgumentException.class)
        .hasMessage("Open MPI's mpirun says rank 8 of 8");
    assertThatThrownBy(() -> new Launch("one", Family.ANY, 0, 1, 1, 1))
        .isInstanceOf(IllegalArgumentException.class)
        .hasMessage("one says local rank 1 of 1");
  }
}
