package io.fairlead.cli.bench;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;

/**
 * The baseline in C: built on this machine by the script beside its source, and run there with the
 * same kernels.
 */
final class CudaPeer {
  private static final int SECONDS_MAX = 60;
  private static final String USUAL_LIBRARY = "libcuda.so.1";

  private final Path script;
  private final String library;

  CudaPeer() {
    this(
        Path.of(System.getProperty("fairlead.root", "."), "fairlead-lab", "peers/cuda/baseline.sh"),
        System.getProperty(CudaSuite.LIBRARY_PROPERTY, USUAL_LIBRARY));
  }

  CudaPeer(Path script, String library) {
    this.script = script;
    this.library = library;
  }

  /**
   * Its lines {@code samples NAME NANOS...}.
   *
   * @throws MissingException if it is not there, cannot be built, fails or hangs
   */
  List<String> samples(Path image, int scale) throws IOException, InterruptedException {
    if (!Files.exists(script)) {
      throw new MissingException(script + " is not there");
    }
    Path said = Files.createTempFile("fairlead-baseline", ".out");
    try {
      Process process =
          new ProcessBuilder("bash", script.toString(), library, image.toString(), "" + scale)
              .redirectErrorStream(true)
              .redirectOutput(said.toFile())
              .start();
      boolean ended = process.waitFor(SECONDS_MAX, TimeUnit.SECONDS);
      if (!ended) {
        process.descendants().forEach(ProcessHandle::destroyForcibly);
        process.destroyForcibly();
      }
      String text = Files.readString(said, StandardCharsets.UTF_8);
      if (!ended || process.exitValue() != 0) {
        throw new MissingException(ended ? text.strip() : "it hangs");
      }
      return text.lines().filter(line -> line.startsWith("samples ")).toList();
    } finally {
      Files.deleteIfExists(said);
    }
  }

  /** There is no baseline here; says why. */
  static final class MissingException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    MissingException(String why) {
      super(why);
    }
  }
}
