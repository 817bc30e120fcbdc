package io.fairlead.ffi;

import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.Arena;
import java.lang.foreign.SymbolLookup;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.PathMatcher;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/**
 * NVIDIA's libraries as this machine has them: where the loader looks, in a toolkit, or in the
 * packages of a Python. {@code -Dfairlead.test.cublas=PATH} and the like name another one.
 */
final class NvidiaLibraries {
  private static final int NEWEST = 13;
  private static final int OLDEST = 11;

  /**
   * Where the rest is looked for; the deepest is below /usr/local or /opt/conda:
   * lib/python3.12/site-packages/nvidia/cublas/lib.
   */
  private static final List<String> FOLDERS =
      List.of(
          "/usr/local",
          "/opt",
          "/usr/lib/python3",
          System.getProperty("user.home") + "/.local/lib");

  private static final int DEPTH = 8;

  private static final Map<String, String> FOUND = new HashMap<>();

  private NvidiaLibraries() {}

  /** Skips the calling test, aloud, if it is not there. */
  static synchronized String find(String name, String... beforeIt) {
    String found = FOUND.computeIfAbsent(name, each -> look(each, beforeIt));
    if (found.isEmpty()) {
      System.out.println("!! NO lib" + name + ".so: the tests that need it were NOT run");
    }
    assumeTrue(!found.isEmpty(), "no lib" + name + ".so here");
    return found;
  }

  private static String look(String name, String... beforeIt) {
    String told = System.getProperty("fairlead.test." + name);
    if (told != null) {
      return told;
    }
    for (int version = NEWEST; version >= OLDEST; version--) {
      String file = "lib" + name + ".so." + version;
      if (loads(file)) {
        return file;
      }
    }
    for (Path path : onDisk(name)) {
      for (String other : beforeIt) { // beside it, and maybe nowhere else
        siblings(path, other).forEach(each -> loads(each.toString()));
      }
      if (loads(path.toString())) {
        return path.toString();
      }
    }
    return "";
  }

  private static boolean loads(String library) {
    try {
      return SymbolLookup.libraryLookup(library, Arena.global()) != null;
    } catch (IllegalArgumentException e) {
      return false;
    }
  }

  private static List<Path> onDisk(String name) {
    PathMatcher matcher = FileSystems.getDefault().getPathMatcher("glob:lib" + name + ".so.1[123]");
    List<Path> found = new ArrayList<>();
    for (String folder : FOLDERS) {
      if (Files.isDirectory(Path.of(folder))) {
        found.addAll(below(Path.of(folder), DEPTH, matcher));
      }
    }
    return found;
  }

  private static List<Path> below(Path folder, int depth, PathMatcher matcher) {
    try (Stream<Path> files = Files.find(folder, depth, (path, _) -> matches(path, matcher))) {
      return files.sorted().toList();
    } catch (IOException | UncheckedIOException e) {
      System.out.println("!! cannot look for libraries in all of " + folder + ": " + e);
      return List.of();
    }
  }

  private static boolean matches(Path path, PathMatcher matcher) {
    @Nullable Path name = path.getFileName();
    return name != null && matcher.matches(name);
  }

  private static List<Path> siblings(Path path, String name) {
    Path folder = path.getParent();
    PathMatcher matcher = FileSystems.getDefault().getPathMatcher("glob:lib" + name + ".so.1[123]");
    return folder == null ? List.of() : below(folder, 1, matcher);
  }
}
