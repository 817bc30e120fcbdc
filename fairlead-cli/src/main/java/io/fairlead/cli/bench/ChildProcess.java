package io.fairlead.cli.bench;

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
import java.util.concurrent.TimeUnit;
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
  }

  /** The cores that a child for so many ranks gets: one each, as far as there are. */
  static int cores(int wanted) {
    return Math.min(wanted, Runtime.getRuntime().availableProcessors());
  }

  /** As {@link #onCores(int, List, List, Duration)}, for as long as it takes. */
  static Result onCores(int wanted, List<String> properties, List<String> args) throws Exception {
    return onCores(wanted, properties, args, null);
  }

  /**
   * Runs this program on that many cores (where {@code taskset} is there to bind it; else the child
   * only believes that it has so many) and waits for it.
   *
   * @param properties more options for its JVM
   * @param limit it is ended after that; null: never
   * @throws ChildFailedException with its output, if it fails or is ended
   */
  static Result onCores(
      int wanted, List<String> properties, List<String> args, @Nullable Duration limit)
      throws Exception {
    List<String> command = new ArrayList<>();
    Path taskset = tool("taskset");
    if (taskset != null) {
      String list =
          Processors.coresFirst().stream()
              .limit(cores(wanted))
              .map(String::valueOf)
              .collect(Collectors.joining(","));
      command.addAll(List.of(taskset.toString(), "-c", list));
    }
    command.addAll(java());
    command.add("-XX:ActiveProcessorCount=" + cores(wanted));
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
    long start = System.nanoTime();
    Path peak = Files.createTempFile("fairlead-bench", ".rss");
    Path said = Files.createTempFile("fairlead-bench", ".out");
    try {
      Process process =
          new ProcessBuilder(timed(whole, peak))
              .redirectErrorStream(true)
              .redirectOutput(said.toFile())
              .start();
      process.getOutputStream().close();
      boolean ended = awaitEnd(process, limit);
      int code = process.waitFor();
      List<String> output = Files.readString(said, StandardCharsets.UTF_8).lines().toList();
      if (!ended || code != 0) {
        throw new ChildFailedException(args, ended ? code : HangWatch.EXIT_CODE, output);
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

  private static @Nullable Path tool(String name) {
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

    ChildFailedException(List<String> args, int code, List<String> output) {
      super(
          Severity.OPERATION,
          String.format(
              Locale.ROOT,
              "the measuring process 'fairlead %s' %s and said:%n%s",
              String.join(" ", args),
              code == HangWatch.EXIT_CODE ? "did not end" : "ended with code " + code,
              String.join("\n", output)),
          null);
      this.hung = code == HangWatch.EXIT_CODE;
    }

    /** Whether it did not end in time, and was ended. */
    boolean hung() {
      return hung;
    }
  }
}
