package io.fairlead.cli.bench;

import io.fairlead.cli.ExitCode;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * A benchmark of ranks that a launcher of ranks started. It starts its ranks itself, so that it can
 * bind them, and have C take turns with them: rank 0 measures, in a process that knows of no
 * launcher and may use every processor again; the other ranks have nothing to do.
 */
final class RankZero {
  private static final Path ONLINE = Path.of("/sys/devices/system/cpu/online");

  private RankZero() {}

  /**
   * Measures as rank 0, or leaves it to rank 0, if a launcher started this process.
   *
   * @param args of this process
   * @return how that ended; empty if this process was started by itself
   */
  static Optional<Integer> measure(List<String> args) throws IOException, InterruptedException {
    Optional<Integer> rank = InstalledMpi.rank(System.getenv());
    if (rank.isEmpty()) {
      return Optional.empty();
    }
    return Optional.of(rank.get() == 0 ? again(args) : ExitCode.OK);
  }

  private static int again(List<String> args) throws IOException, InterruptedException {
    List<String> command = new ArrayList<>(onEveryProcessor());
    command.addAll(ChildProcess.command(properties(), args));
    ProcessBuilder builder = new ProcessBuilder(command).inheritIO();
    Map<String, String> environment = builder.environment();
    InstalledMpi.forget(environment);
    Process process = builder.start();
    try {
      return process.waitFor();
    } finally {
      process.descendants().forEach(ProcessHandle::destroyForcibly);
      process.destroyForcibly();
    }
  }

  private static List<String> properties() {
    return ManagementFactory.getRuntimeMXBean().getInputArguments().stream()
        .filter(option -> option.startsWith("-D"))
        .toList();
  }

  /** Launchers bind ranks to a core, which those that this rank starts would inherit. */
  private static List<String> onEveryProcessor() throws IOException {
    Path taskset = ChildProcess.tool("taskset");
    return taskset == null || !Files.isReadable(ONLINE)
        ? List.of()
        : List.of(taskset.toString(), "-c", Files.readString(ONLINE).strip());
  }
}
