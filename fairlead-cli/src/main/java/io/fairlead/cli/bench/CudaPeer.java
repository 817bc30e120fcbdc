package io.fairlead.cli.bench;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/**
 * Another one who launches and waits on a GPU: the baseline in C, which is built on this machine,
 * or a library of another language. Run by the script beside its source, with the same kernels.
 */
final class CudaPeer {
  /** Libraries that may be there. */
  static final List<String> LIBRARIES = List.of("cupy", "torch", "lwjgl", "jcuda");

  private static final int SECONDS_MAX = 60;
  private static final int NOT_THERE = 69;
  private static final String USUAL_LIBRARY = "libcuda.so.1";

  /** The script, and what comes before the driver's library. */
  private final List<String> command;

  private final String library;

  /** C. */
  CudaPeer() {
    this(folder().resolve("baseline.sh"), usualLibrary());
  }

  /** Another program in C, by the script that builds it. */
  static CudaPeer script(String name) {
    return new CudaPeer(folder().resolve(name), usualLibrary());
  }

  /** C, built by a script, on a driver. */
  CudaPeer(Path script, String library) {
    this(List.of(script.toString()), library);
  }

  private CudaPeer(List<String> command, String library) {
    this.command = command;
    this.library = library;
  }

  /** One of {@link #LIBRARIES}. */
  static CudaPeer of(String name) {
    return of(name, folder(), usualLibrary());
  }

  static CudaPeer of(String name, Path folder, String library) {
    return new CudaPeer(List.of(folder.resolve("peers.sh").toString(), name), library);
  }

  private static Path folder() {
    return Path.of(System.getProperty("fairlead.root", "."), "fairlead-lab", "peers", "cuda");
  }

  private static String usualLibrary() {
    return System.getProperty(CudaSuite.LIBRARY_PROPERTY, USUAL_LIBRARY);
  }

  /**
   * Its lines {@code samples NAME NANOS...}.
   *
   * @param cores it is bound to so many, the same ones as a {@link ChildProcess.Place} has
   * @param part of what C measures, see baseline.c; none for another library
   * @throws MissingException if it is not there, cannot be built, fails or hangs
   */
  List<String> samples(Path image, int scale, int cores, String... part)
      throws IOException, InterruptedException {
    Path script = Path.of(command.getFirst());
    if (!Files.exists(script)) {
      throw new MissingException(script + " is not there", true);
    }
    Path said = Files.createTempFile("fairlead-peer", ".out");
    try {
      ProcessBuilder builder =
          new ProcessBuilder(words(image, scale, cores, part))
              .redirectErrorStream(true)
              .redirectOutput(said.toFile());
      builder
          .environment()
          .put("JAVA", Path.of(System.getProperty("java.home"), "bin", "java").toString());
      Process process = builder.start();
      boolean ended = process.waitFor(SECONDS_MAX, TimeUnit.SECONDS);
      if (!ended) {
        process.descendants().forEach(ProcessHandle::destroyForcibly);
        process.destroyForcibly();
      }
      String text = Files.readString(said, StandardCharsets.UTF_8);
      if (!ended || process.exitValue() != 0) {
        boolean there = !ended || process.exitValue() != NOT_THERE;
        throw new MissingException(ended ? text.strip() : "it hangs", !there);
      }
      return text.lines().filter(line -> line.startsWith("samples ")).toList();
    } finally {
      Files.deleteIfExists(said);
    }
  }

  private List<String> words(Path image, int scale, int cores, String... part) {
    List<String> words = new ArrayList<>(ChildProcess.bound(cores));
    words.add("bash");
    words.addAll(command);
    words.addAll(List.of(library, image.toString(), "" + scale));
    words.addAll(List.of(part));
    return words;
  }

  /** It gave no figures; says why. */
  static final class MissingException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    private final boolean absent;

    MissingException(String why, boolean absent) {
      super(why);
      this.absent = absent;
    }

    /** Whether this machine does not have it, which is no failure. */
    boolean absent() {
      return absent;
    }
  }
}
