package io.fairlead.lab;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Stream;

/** Where the sources and the compiled classes of all modules lie. */
public final class Repository {
  private static final Path ROOT = findRoot();

  private Repository() {}

  /** The folder of the root pom. */
  public static Path root() {
    return ROOT;
  }

  /** The folders of all modules, in no particular order. */
  public static List<Path> modules() {
    try (Stream<Path> folders = Files.list(ROOT)) {
      return folders.filter(f -> Files.exists(f.resolve("pom.xml"))).sorted().toList();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** The text of a file, its path relative to the root. */
  public static String read(String file) {
    try {
      return Files.readString(ROOT.resolve(file));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** Maven tells; an editor that runs a test alone starts it somewhere below. */
  private static Path findRoot() {
    String told = System.getProperty("fairlead.root");
    Path folder = told != null ? Path.of(told) : Path.of("").toAbsolutePath();
    while (!Files.exists(folder.resolve("ARCHITECTURE.md"))) {
      folder = folder.getParent();
      if (folder == null) {
        throw new IllegalStateException(
            "No ARCHITECTURE.md here or above; run the tests from the repository or pass"
                + " -Dfairlead.root=FOLDER");
      }
    }
    return folder;
  }
}
