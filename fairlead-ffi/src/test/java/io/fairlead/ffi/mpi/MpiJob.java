package io.fairlead.ffi.mpi;

import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fairlead.comm.Launch;
import io.fairlead.ffi.MpiLauncher;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/** Ranks of a test, each a JVM with this one's class path, started by a launcher. */
final class MpiJob implements AutoCloseable {
  private static final List<MpiLauncher> INSTALLED = MpiLauncher.installed();
  private static final int SECONDS_MAX = 110;

  private final Process process;
  private final Path output;

  private MpiJob(Process process, Path output) {
    this.process = process;
    this.output = output;
  }

  /** The launcher of a family; skips the calling test, and says so, where there is none. */
  static MpiLauncher launcher(Launch.Family family) {
    List<MpiLauncher> found = INSTALLED.stream().filter(each -> each.family() == family).toList();
    String reason =
        "NO LAUNCHER OF " + family + " (scripts/install-peers installs Open MPI and MPICH)";
    if (found.isEmpty()) {
      System.out.println("!! " + reason + ": its suites were NOT run");
    }
    assumeTrue(!found.isEmpty(), reason);
    return found.getFirst();
  }

  /**
   * Starts ranks of a program.
   *
   * @param options for each JVM, and for the launcher if they begin the list before "java"
   */
  static MpiJob start(
      MpiLauncher launcher, int ranks, List<String> options, Class<?> main, String... arguments)
      throws IOException {
    List<String> command = new ArrayList<>(launcher.words(ranks, MpiLauncher.Binding.NONE));
    command.addAll(java(options, main, arguments));
    return start(command, launcher.environment());
  }

  static List<String> java(List<String> options, Class<?> main, String... arguments) {
    List<String> command = new ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    command.addAll(List.of("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m"));
    command.addAll(List.of("-ea", "--enable-native-access=ALL-UNNAMED"));
    command.addAll(options);
    command.addAll(List.of("-cp", System.getProperty("java.class.path"), main.getName()));
    command.addAll(List.of(arguments));
    return command;
  }

  static MpiJob start(List<String> command, Map<String, String> environment) throws IOException {
    Path output = Files.createTempFile("fairlead-mpi", ".out");
    ProcessBuilder builder =
        new ProcessBuilder(command)
            .redirectErrorStream(true)
            .redirectInput(new File("/dev/null"))
            .redirectOutput(output.toFile());
    builder.environment().putAll(environment);
    return new MpiJob(builder.start(), output);
  }

  /** Waits for the end, which comes, or the test fails with what was printed so far. */
  int await() throws IOException, InterruptedException {
    if (!endsWithin(SECONDS_MAX)) {
      throw new AssertionError("it hangs; so far it said:\n" + output());
    }
    return process.exitValue();
  }

  boolean endsWithin(int seconds) throws InterruptedException {
    return process.waitFor(seconds, TimeUnit.SECONDS);
  }

  /** What all ranks and the launcher have printed. */
  String output() throws IOException {
    return Files.readString(output);
  }

  @Override
  public void close() throws IOException {
    process.descendants().forEach(ProcessHandle::destroyForcibly);
    process.destroyForcibly();
    Files.deleteIfExists(output);
  }
}
