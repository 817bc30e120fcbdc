package io.fairlead.ffi;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.comm.Launch.Family;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;
import org.junit.jupiter.api.io.TempDir;

/** Whose launcher a program is, by what it says of itself. */
@Timeout(60)
@EnabledOnOs(value = OS.LINUX, disabledReason = "its programs are shell scripts")
class MpiLauncherTest {
  private static final Path COMMAND = Path.of("mpirun");

  @TempDir private Path folder;

  private Path program(String text) throws IOException {
    Path file = folder.resolve("program");
    Files.writeString(file, "#!/bin/sh\n" + text + "\n");
    assertThat(file.toFile().setExecutable(true)).isTrue();
    return file;
  }

  @Test
  void eachFamilySaysItInItsWords() {
    assertThat(MpiLauncher.of(COMMAND, "mpirun (Open MPI) 4.1.4\n\nReport bugs to\n"))
        .isEqualTo(new MpiLauncher(Family.OPEN_MPI, "Open MPI 4.1.4", COMMAND));
    assertThat(MpiLauncher.of(COMMAND, "HYDRA build details:\n    Version:    4.0.2\n"))
        .isEqualTo(new MpiLauncher(Family.MPICH, "MPICH 4.0.2", COMMAND));
    assertThat(MpiLauncher.of(COMMAND, "another one 1.0")).isNull();
  }

  @Test
  void aProgramIsAsked() throws IOException {
    Path command = program("echo mpirun '(Open MPI)' 5.0.1");
    assertThat(MpiLauncher.at(command))
        .contains(new MpiLauncher(Family.OPEN_MPI, "Open MPI 5.0.1", command));
    assertThat(MpiLauncher.at(folder.resolve("nowhere"))).isEmpty();
  }

  /** Nobody waits for it. */
  @Test
  void aProgramThatDoesNotEndIsNone() throws IOException {
    Path command = program("echo mpirun '(Open MPI)' 5.0.1; exec sleep 3600");
    assertThat(MpiLauncher.ask(command, Duration.ofMillis(200))).isNull();
  }
}
