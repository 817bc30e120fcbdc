package io.fairlead.cli;

import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/** The stand-in for NVIDIA's driver that the tests of fairlead-ffi have, built for these tests. */
public final class StandInDriver {
  private static final Path SOURCES =
      Path.of(System.getProperty("fairlead.root", ".."))
          .toAbsolutePath()
          .resolve("fairlead-ffi/src/test/native");

  private StandInDriver() {}

  /** Builds it in this folder. Skips the calling tests, aloud, where nothing compiles it. */
  public static Path build(Path folder) {
    boolean possible = Files.isDirectory(SOURCES) && Files.isExecutable(Path.of("/usr/bin/gcc"));
    String wanted = "gcc and " + SOURCES + " are to make the stand-in driver";
    if (!possible) {
      System.err.println("!! NOT RUN: " + wanted);
    }
    assumeTrue(possible, wanted);
    Path library = folder.resolve("libstandin.so");
    try {
      compile(library);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    } catch (InterruptedException e) {
      throw new AssertionError("interrupted while the stand-in was built", e);
    }
    return library;
  }

  private static void compile(Path library) throws IOException, InterruptedException {
    List<String> command =
        new ArrayList<>(
            List.of("gcc", "-std=c11", "-O1", "-fPIC", "-shared", "-pthread", "-Wl,-z,nodelete"));
    command.addAll(List.of("-o", library.toString()));
    try (Stream<Path> files = Files.list(SOURCES)) {
      files.map(Path::toString).filter(f -> f.endsWith(".c")).forEach(command::add);
    }
    Process gcc = new ProcessBuilder(command).inheritIO().start();
    if (!gcc.waitFor(60, TimeUnit.SECONDS) || gcc.exitValue() != 0) {
      throw new AssertionError("gcc does not compile the stand-in");
    }
  }
}
