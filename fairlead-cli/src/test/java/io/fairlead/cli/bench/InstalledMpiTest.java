package io.fairlead.cli.bench;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.cli.bench.InstalledMpi.Binding;
import io.fairlead.cli.bench.InstalledMpi.Flavour;
import java.io.IOException;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;
import org.junit.jupiter.api.io.TempDir;

/** Which MPIs are found, and how they are called. */
@EnabledOnOs(OS.LINUX)
class InstalledMpiTest {
  @TempDir private Path folder;

  private static List<String> names(List<Path> files) {
    return files.stream()
        .map(file -> Objects.requireNonNull(file.getFileName()).toString())
        .toList();
  }

  @Test
  void eachInstalledOneIsFoundUnderItsOwnName() throws Exception {
    StandInMpi mpi = new StandInMpi(folder);
    mpi.launcher(Flavour.OPEN_MPI);
    mpi.launcher(Flavour.MPICH);
    List<InstalledMpi> found = InstalledMpi.found(List.of(folder));
    assertThat(found.stream().map(InstalledMpi::flavour)).containsExactly(Flavour.values());
    assertThat(names(found.stream().map(InstalledMpi::launcher).toList()))
        .containsExactly("mpirun.openmpi", "mpirun.mpich");
    assertThat(
            names(found.stream().map(InstalledMpi::compiler).map(Objects::requireNonNull).toList()))
        .containsExactly("mpicc.openmpi", "mpicc.mpich");
  }

  @Test
  void theUsualNameIsAskedWhoseItIs() throws Exception {
    StandInMpi mpi = new StandInMpi(folder);
    mpi.program("mpirun", "#!/bin/sh\necho HYDRA build details:\n");
    InstalledMpi only = InstalledMpi.found(List.of(folder)).getFirst();
    assertThat(only.flavour()).isEqualTo(Flavour.MPICH);
    assertThat(only.compiler()).as("none is here").isNull();
    mpi.program("mpirun", "#!/bin/sh\necho 'mpirun (Open MPI) 4.1.4'\n");
    assertThat(InstalledMpi.found(List.of(folder)).stream().map(InstalledMpi::flavour))
        .containsExactly(Flavour.OPEN_MPI);
    mpi.program("mpirun", "#!/bin/sh\necho another one\n");
    assertThat(InstalledMpi.found(List.of(folder))).isEmpty();
  }

  @Test
  void bindingIsSaidInTheLaunchersWords() throws IOException {
    StandInMpi mpi = new StandInMpi(folder);
    assertThat(mpi.launcher(Flavour.OPEN_MPI).command(1, Binding.BOUND).stream().skip(1))
        .containsExactly("--bind-to", "core", "-n", "1");
    assertThat(mpi.launcher(Flavour.MPICH).command(2, Binding.UNBOUND).stream().skip(1))
        .containsExactly("-bind-to", "none", "-n", "2");
    int many = 10 * Runtime.getRuntime().availableProcessors();
    assertThat(mpi.launcher(Flavour.OPEN_MPI).command(many, Binding.UNBOUND))
        .contains("--oversubscribe");
  }

  @Test
  void aLauncherDoesNotSeeWhoStartedThisProcess() {
    Map<String, String> outer =
        new HashMap<>(
            Map.of(
                "OMPI_COMM_WORLD_RANK", "1",
                "PMIX_NAMESPACE", "x",
                "PMI_FD", "6",
                "HYDI_CONTROL_FD", "7",
                "PATH", "/usr/bin"));
    assertThat(InstalledMpi.rank(outer)).contains(1);
    InstalledMpi.forget(outer);
    assertThat(InstalledMpi.rank(outer)).isEmpty();
    assertThat(outer).containsEntry("PATH", "/usr/bin");
    assertThat(outer.keySet()).noneMatch(name -> name.startsWith("PMI") || name.startsWith("HYDI"));
  }

  @Test
  void settingsOfAUserAreKeptWhereNoLauncherStartedThisProcess() {
    Map<String, String> environment = new HashMap<>(Map.of("OMPI_MCA_pml", "ob1"));
    assertThat(InstalledMpi.rank(environment)).isEmpty();
    InstalledMpi.prepare(environment);
    assertThat(environment).containsEntry("OMPI_MCA_pml", "ob1");
    assertThat(InstalledMpi.rank(Map.of("PMI_RANK", "none"))).isEmpty();
  }
}
