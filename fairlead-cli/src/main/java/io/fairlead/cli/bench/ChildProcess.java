package io.fairlead.cli.bench;

import io.fairlead.cli.HangWatch;
import io.fairlead.cli.Processors;
import io.fairlead.fault.FairleadException;
import io.fairlead.fault.Severity;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.stream.Collectors;
import org.jspecify.annotations.Nullable;

/**
 * This program once more, in a process of its own: for a measurement that needs its own number of
 * cores, or a cold start.
 */
final class ChildProcess {
  private ChildProcess() {}

  /**
   * How a child ended.
   *
   * @param peakBytes the most memory it had resident, or -1 where the system does not say
   */
  record Result(List<String> output, double seconds, long peakBytes) {
    /** The lines that begin with {@code prefix}. */
    List<String> lines(String prefix) {
      return output.stream().filter(line -> line.startsWith(prefix)).toList();
    }

    /** The samples that it printed, in order. */
    List<SampleLine> samples() {
      return output.stream().flatMap(line -> SampleLine.parse(line).stream()).toList();
    }
  }

  /**
   * Where a child runs.
   *
   * @param cores it is bound to so many, as far as there are
   * @param processors its JVM takes itself to have so many, as far as there are: so many carriers
   */
  record Place(int cores, int processors) {
    /** All that this process may use. */
    static Place all() {
      return new Place(Integer.MAX_VALUE, Integer.MAX_VALUE);
    }

    /**
     * So many carriers, and a core more for the JVM's own threads: compilers, collector, watchers.
     */
    static Place withRoom(int carriers) {
      return new Place(carriers + 1, carriers);
    }

    /** So many carriers, which share their cores with the JVM's own threads. */
    static Place tight(int carriers) {
      return new Place(carriers, carriers);
    }
  }

  /**
   * What stands before a command to bind it to so many of this process's cores: always the same
   * ones. Nothing where there is no {@code taskset}.
   */
  static List<String> bound(int cores) {
    Path taskset = tool("taskset");
    if (taskset == null) {
      return List.of();
    }
    String list =
        Processors.coresFirst().stream()
            .limit(cores(cores))
            .map(String::valueOf)
            .collect(Collectors.joining(","));
    return List.of(taskset.toString(), "-c", list);
  }

  /** The cores that a child for so many ranks gets: one each, as far as there are. */
  static int cores(int wanted) {
    return Math.min(wanted, Runtime.getRuntime().availableProcessors());
  }

  /** As {@link #onCores(Place, List, List, Duration)}, for as long as it takes. */
  static Result onCores(int wanted, List<String> properties, List<String> args) throws Exception {
    return onCores(Place.tight(wanted), properties, args, null);
  }

  /**
   * Runs this program there (where {@code taskset} is there to bind it; else the child only
   * believes that it has so many cores) and waits for it.
   *
   * @param properties more options for its JVM
   * @param limit it is ended after that; null: never
   * @throws ChildFailedException with its output, if it fails or is ended
   */
  static Result onCores(
      Place place, List<String> properties, List<String> args, @Nullable Duration limit)
      throws Exception {
    List<String> command = new ArrayList<>(bound(place.cores()));
    command.addAll(java());
    command.add("-XX:ActiveProcessorCount=" + cores(place.processors()));
    command.addAll(properties);
    return start(command, args, limit);
  }

  /**
   * Runs this program and waits for it.
   *
   * @throws ChildFailedException with its output, if it fails
   */
  static Result run(List<String> args) throws Exception {
    return start(java(), args, null);
  }

  private static Result start(List<String> command, List<String> args, @Nullable Duration limit)
      throws Exception {
    List<String> whole = new ArrayList<>(command);
    whole.addAll(program());
    whole.addAll(args);
    return run("fairlead " + String.join(" ", args), whole, environment -> {}, limit);
  }

  /**
   * This program as a command: for who starts it otherwise.
   *
   * @param properties more options for its JVM
   */
  static List<String> command(List<String> properties, List<String> args) {
    List<String> whole = new ArrayList<>(java());
    whole.addAll(properties);
    whole.addAll(program());
    whole.addAll(args);
    return whole;
  }

  /**
   * Runs any command and waits for it.
   *
   * @param what the command in a few words, for who is told that it failed
   * @param change makes its environment from this process's
   * @param limit it is ended after that, with all that it started; null: never
   * @throws ChildFailedException with its output, if it fails or is ended
   */
  static Result run(
      String what,
      List<String> whole,
      Consumer<Map<String, String>> change,
      @Nullable Duration limit)
      throws Exception {
    long start = System.nanoTime();
    Path peak = Files.createTempFile("fairlead-bench", ".rss");
    Path said = Files.createTempFile("fairlead-bench", ".out");
    try {
      ProcessBuilder builder =
          new ProcessBuilder(timed(whole, peak))
              .redirectErrorStream(true)
              .redirectOutput(said.toFile());
      change.accept(builder.environment());
      Process process = builder.start();
      process.getOutputStream().close();
      boolean ended = awaitEnd(process, limit);
      int code = process.waitFor();
      List<String> output = Files.readString(said, StandardCharsets.UTF_8).lines().toList();
      if (!ended || code != 0) {
        throw new ChildFailedException(what, ended ? code : HangWatch.EXIT_CODE, output);
      }
      return new Result(output, (System.nanoTime() - start) * 1e-9, peakBytes(peak));
    } finally {
      Files.deleteIfExists(peak);
      Files.deleteIfExists(said);
    }
  }

  /** Returns whether the process ended by itself. */
  private static boolean awaitEnd(Process process, @Nullable Duration limit)
      throws InterruptedException {
    try {
      if (limit == null) {
        process.waitFor();
        return true;
      }
      return process.waitFor(limit.toMillis(), TimeUnit.MILLISECONDS);
    } finally {
      // taskset and time stand before the one that measures
      process.descendants().forEach(ProcessHandle::destroyForcibly);
      process.destroyForcibly();
    }
  }

  /** GNU time tells a child's peak memory; without it the figure is missing, not guessed. */
  private static List<String> timed(List<String> command, Path peak) {
    Path time = tool("time");
    if (time == null) {
      return command;
    }
    List<String> whole = new ArrayList<>();
    whole.addAll(List.of(time.toString(), "-f", "%M", "-o", peak.toString()));
    whole.addAll(command);
    return whole;
  }

  private static long peakBytes(Path peak) throws IOException {
    List<String> lines = Files.readAllLines(peak);
    return lines.isEmpty() ? -1 : Long.parseLong(lines.getLast().strip()) * 1024;
  }

  private static List<String> java() {
    List<String> command = new ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    command.add("--enable-native-access=io.fairlead.ffi");
    command.addAll(tuning());
    return command;
  }

  /** A child starts as this process did: with its collector, caches, heap, carriers. */
  private static List<String> tuning() {
    return ManagementFactory.getRuntimeMXBean().getInputArguments().stream()
        .filter(option -> option.startsWith("-X") || option.startsWith("--add-opens"))
        .toList();
  }

  private static List<String> program() {
    String modules = System.getProperty("jdk.module.path");
    return modules == null
        ? List.of("-cp", System.getProperty("java.class.path"), "io.fairlead.cli.Main")
        : List.of("--module-path", modules, "--module", "io.fairlead.cli/io.fairlead.cli.Main");
  }

  /** A program of the system, if it is there. */
  static @Nullable Path tool(String name) {
    for (String folder : new String[] {"/usr/bin", "/bin", "/usr/local/bin"}) {
      Path tool = Path.of(folder, name);
      if (Files.isExecutable(tool)) {
        return tool;
      }
    }
    return null;
  }

  /** A measuring process failed. */
  static final class ChildFailedException extends FairleadException {
    private static final long serialVersionUID = 1L;

    private final boolean hung;

    /** Strings, in an exception that could be serialized. */
    private final ArrayList<String> output;

    ChildFailedException(String what, int code, List<String> output) {
      super(
          Severity.OPERATION,
          String.format(
              Locale.ROOT,
              "the measuring process '%s' %s and said:%n%s",
              what,
              code == HangWatch.EXIT_CODE ? "did not end" : "ended with code " + code,
              String.join("\n", output)),
          null);
      this.hung = code == HangWatch.EXIT_CODE;
      this.output = new ArrayList<>(output);
    }

    /** What it had said by then, of the lines that begin with {@code prefix}: it stands. */
    List<String> lines(String prefix) {
      return output.stream().filter(line -> line.startsWith(prefix)).toList();
    }

    /** Whether it did not end in time, and was ended. */
    boolean hung() {
      return hung;
    }
  }
}
