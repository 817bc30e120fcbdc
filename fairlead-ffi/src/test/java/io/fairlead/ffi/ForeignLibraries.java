package io.fairlead.ffi;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Libraries that call the driver by themselves, built from {@code src/test/native/foreign} against
 * the stand-in: a BLAS and a run-time API, by the names of the real ones.
 */
final class ForeignLibraries {
  private static final Map<String, String> BUILT = new HashMap<>();

  private ForeignLibraries() {}

  /** Builds it at the first call, with the compiler that has built the stand-in. */
  static synchronized String get(StandInLibrary standIn, String name) {
    return BUILT.computeIfAbsent(name, each -> build(standIn, each));
  }

  private static String build(StandInLibrary standIn, String name) {
    Path source = StandInLibrary.sources().resolve("foreign").resolve(name + ".c");
    Path target = standIn.path().resolveSibling("lib" + name + ".so");
    Path fresh = target.resolveSibling(name + "." + ProcessHandle.current().pid());
    List<String> command =
        List.of(
            StandInLibrary.compiler(),
            "-std=c11",
            "-O1",
            "-g",
            "-fPIC",
            "-shared",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-o",
            fresh.toString(),
            source.toString(),
            standIn.path().toString());
    try {
      if (new ProcessBuilder(command).inheritIO().start().waitFor() != 0) {
        throw new AssertionError("the compiler refuses " + source);
      }
      Files.move(fresh, target, StandardCopyOption.REPLACE_EXISTING);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    } catch (InterruptedException e) {
      throw new AssertionError("interrupted while " + source + " was built", e);
    }
    return target.toString();
  }
}
