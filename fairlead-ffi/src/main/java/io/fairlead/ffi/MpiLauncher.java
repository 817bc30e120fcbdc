package io.fairlead.ffi;

import io.fairlead.comm.Launch;
import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/**
 * A launcher of ranks that is installed here, and how to say things to it: each family has other
 * words for the same. Immutable; any thread.
 *
 * @param family whose library the ranks must load
 * @param version what it says of itself: {@code Open MPI 4.1.4}
 * @param command where it is
 */
public record MpiLauncher(Launch.Family family, String version, Path command) {
  private static final List<String> NAMES =
      List.of("mpirun.openmpi", "mpirun.mpich", "mpirun", "mpiexec", "mpiexec.hydra");

  private static final int ANSWER_BYTES_MAX = 4096;
  private static final Duration ANSWER_MAX = Duration.ofSeconds(10);

  /** Where a launcher puts its ranks. */
  public enum Binding {
    /** Each rank may use every processor. */
    NONE,
    /** Each rank has a core of its own. */
    CORE
  }

  /**
   * The launchers on the {@code PATH}, one of each family. Blocks: it asks each for its version.
   */
  public static List<MpiLauncher> installed() {
    List<MpiLauncher> found = new ArrayList<>();
    for (String name : NAMES) {
      Path command = onPath(name);
      MpiLauncher launcher = command == null ? null : ask(command, ANSWER_MAX);
      if (launcher != null && found.stream().noneMatch(each -> each.family == launcher.family)) {
        found.add(launcher);
      }
    }
    return List.copyOf(found);
  }

  private static @Nullable Path onPath(String name) {
    String path = Optional.ofNullable(System.getenv("PATH")).orElse("");
    return Stream.of(path.split(File.pathSeparator, -1))
        .filter(folder -> !folder.isEmpty())
        .map(folder -> Path.of(folder, name))
        .filter(Files::isExecutable)
        .findFirst()
        .orElse(null);
  }

  /**
   * The launcher that a program is; empty if it is none that is known, or does not answer. Blocks:
   * it is asked for its version.
   */
  public static Optional<MpiLauncher> at(Path command) {
    return Optional.ofNullable(ask(command, ANSWER_MAX));
  }

  /** An answer fits into a pipe, so it is read when the program has ended, or not at all. */
  static @Nullable MpiLauncher ask(Path command, Duration limit) {
    try {
      Process process =
          new ProcessBuilder(command.toString(), "--version")
              .redirectErrorStream(true)
              .redirectInput(ProcessBuilder.Redirect.from(new File("/dev/null")))
              .start();
      try {
        if (!process.waitFor(limit)) {
          return null;
        }
        byte[] answer = process.getInputStream().readNBytes(ANSWER_BYTES_MAX);
        return of(command, new String(answer, StandardCharsets.UTF_8));
      } finally {
        process.destroyForcibly();
      }
    } catch (IOException cannotBeRun) {
      return null;
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      return null;
    }
  }

  /** What a launcher answered; null: it is none that is known. */
  static @Nullable MpiLauncher of(Path command, String answer) {
    if (answer.contains("Open MPI") || answer.contains("OpenRTE")) {
      return new MpiLauncher(Launch.Family.OPEN_MPI, "Open MPI " + number(answer), command);
    }
    if (answer.contains("HYDRA")) {
      return new MpiLauncher(Launch.Family.MPICH, "MPICH " + number(answer), command);
    }
    return null;
  }

  private static String number(String answer) {
    return Stream.of(answer.split("\\s+", -1))
        .filter(word -> word.matches("\\d+\\.\\d+.*"))
        .findFirst()
        .orElse("of unknown version");
  }

  /**
   * The words that start {@code ranks} ranks of a command on this host, more of them than it has
   * cores if need be; the command comes behind.
   */
  public List<String> words(int ranks, Binding binding) {
    List<String> words = new ArrayList<>(List.of(command.toString()));
    words.addAll(List.of("-n", Integer.toString(ranks)));
    if (family == Launch.Family.OPEN_MPI) {
      words.addAll(
          List.of("--oversubscribe", "--bind-to", binding == Binding.NONE ? "none" : "core"));
    } else {
      words.addAll(List.of("-bind-to", binding == Binding.NONE ? "none" : "core"));
    }
    return List.copyOf(words);
  }

  /** What the environment of {@link #words} must say besides, so that it works for any user. */
  public Map<String, String> environment() {
    return family == Launch.Family.OPEN_MPI
        ? Map.of("OMPI_ALLOW_RUN_AS_ROOT", "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        : Map.of();
  }
}
