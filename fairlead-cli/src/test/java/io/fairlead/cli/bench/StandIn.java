package io.fairlead.cli.bench;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/** The stand-in for a GPU's driver, as the drivers that this process opens find it. */
final class StandIn {
  static final Path ROOT = Path.of(System.getProperty("fairlead.root", "..")).toAbsolutePath();

  private StandIn() {}

  /** Builds it there. The test is skipped, loudly, where it cannot be. */
  static Path build(Path folder) throws IOException, InterruptedException {
    Path sources = ROOT.resolve("fairlead-ffi/src/test/native");
    boolean possible = Files.isDirectory(sources) && Files.isExecutable(Path.of("/usr/bin/gcc"));
    String wanted = "gcc and " + sources + " are to make the stand-in driver";
    if (!possible) {
      System.err.println("!! NOT RUN: " + wanted);
    }
    assumeTrue(possible, wanted);
    Path library = folder.resolve("libstandin.so");
    List<String> command =
        new ArrayList<>(
            List.of("gcc", "-std=c11", "-O1", "-fPIC", "-shared", "-pthread", "-Wl,-z,nodelete"));
    command.addAll(List.of("-o", library.toString()));
    try (Stream<Path> files = Files.list(sources)) {
      files.map(Path::toString).filter(f -> f.endsWith(".c")).forEach(command::add);
    }
    Process gcc = new ProcessBuilder(command).inheritIO().start();
    assertThat(gcc.waitFor(60, TimeUnit.SECONDS)).isTrue();
    assertThat(gcc.exitValue()).isZero();
    return library;
  }

  /** Sets the memory of its first device, for drivers that are opened from now on. */
  static void setMemory(Path library, long bytes) {
    MethodHandle set =
        Linker.nativeLinker()
            .downcallHandle(
                SymbolLookup.libraryLookup(library, Arena.global())
                    .findOrThrow("standin_set_memory"),
                FunctionDescriptor.ofVoid(JAVA_INT, JAVA_LONG));
    try {
      set.invokeExact(0, bytes);
    } catch (Throwable e) {
      throw new AssertionError(e);
    }
  }

  /**
   * Whether its streams share hardware queues, which are in order: so many; 0 for a queue each.
   * From now on, for streams that are made then.
   */
  static void setQueues(Path library, int queues) {
    SymbolLookup symbols = SymbolLookup.libraryLookup(library, Arena.global());
    FunctionDescriptor type = FunctionDescriptor.ofVoid(JAVA_INT);
    MethodHandle mode =
        Linker.nativeLinker()
            .downcallHandle(symbols.findOrThrow("standin_mode_hardware_queues"), type);
    MethodHandle count =
        Linker.nativeLinker().downcallHandle(symbols.findOrThrow("standin_set_connections"), type);
    try {
      mode.invokeExact(queues == 0 ? 0 : 2);
      count.invokeExact(queues == 0 ? 32 : queues);
    } catch (Throwable e) {
      throw new AssertionError(e);
    }
  }

  /**
   * Runs something that finds that library; the provider that is asked for a GPU knows no other
   * way.
   */
  static <T> T with(Path library, Callable<T> body) {
    String before = System.getProperty(CudaSuite.LIBRARY_PROPERTY);
    System.setProperty(CudaSuite.LIBRARY_PROPERTY, library.toString());
    try {
      return body.call();
    } catch (RuntimeException unchecked) {
      throw unchecked;
    } catch (Exception checked) {
      throw new AssertionError(checked);
    } finally {
      if (before == null) {
        System.clearProperty(CudaSuite.LIBRARY_PROPERTY);
      } else {
        System.setProperty(CudaSuite.LIBRARY_PROPERTY, before);
      }
    }
  }
}
