package io.fairlead.cli.bench;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.cli.bench.InstalledMpi.Flavour;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/** As much of an MPI as the suite's harness uses: programs that start, compile and print. */
final class StandInMpi {
  /** Starts what it is to start, once: all ranks are then in that one process. */
  private static final String LAUNCHER =
      """
      #!/bin/sh
      echo "$@" >> "$0.calls"
      while [ "$1" != -n ]; do shift; done
      shift 2
      exec "$@"
      """;

  private final Path folder;

  StandInMpi(Path folder) {
    this.folder = folder;
  }

  /** A launcher that can be run, with a compiler that is there. */
  InstalledMpi launcher(Flavour flavour) throws IOException {
    Path launcher = program("mpirun." + flavour.word(), LAUNCHER);
    return new InstalledMpi(flavour, launcher, program("mpicc." + flavour.word(), ""));
  }

  /** In place of what builds the twin: makes a program that prints these lines. */
  Path twin(String... lines) throws IOException {
    return program(
        "twin.sh",
        """
        #!/bin/bash
        printf '#!/bin/sh\\ncat <<EOF\\n%%s\\nEOF\\n' "%s" > "$2"
        chmod +x "$2"
        """
            .formatted(String.join("\n", lines)));
  }

  Path program(String name, String text) throws IOException {
    Path file = folder.resolve(name);
    Files.writeString(file, text);
    assertThat(file.toFile().setExecutable(true)).isTrue();
    return file;
  }

  /** What the launcher of that flavour was called with, a line each. */
  String calls(Flavour flavour) throws IOException {
    return Files.readString(folder.resolve("mpirun." + flavour.word() + ".calls"));
  }
}
