package io.fairlead.cli;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fairlead.comm.Launch.Family;
import io.fairlead.ffi.MpiLauncher;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** {@code mpirun -n 2 fairlead solve …}, with each family of launchers that is installed. */
@Timeout(320)
class MpirunTest {
  private static final List<MpiLauncher> INSTALLED = MpiLauncher.installed();
  private static final int KILLED = 9;
  private static final Duration ENOUGH = Duration.ofSeconds(100);

  /**
   * A shell around each rank: writes its process down in {@code $0.RANK}, and in {@code
   * $0.RANK.code} how it ended, which the launcher keeps to itself. MPICH's sends a signal to the
   * others when one ends, which would end them.
   */
  private static final String WATCHED =
      """
      trap '' USR1
      rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
      "$@" & echo $! > "$0.$rank.new"
      mv "$0.$rank.new" "$0.$rank"
      wait $!; code=$?
      echo $code > "$0.$rank.code"
      exit $code
      """;

  @TempDir private Path folder;

  private record Ended(int code, String out, String err) {
    String all() {
      return "exit code " + code + "\n" + out + "\n" + err;
    }
  }

  // --- the ranks solve together -----------------------------------------------------------------

  @ParameterizedTest
  @EnumSource(names = {"OPEN_MPI", "MPICH"})
  void processesSolveAsRanksOfOneProcessDo(Family family) throws Exception {
    Path one = folder.resolve("one.mtx");
    Path several = folder.resolve("several.mtx");
    Run inProcess = Run.fairlead("solve", "--poisson", 12, "--ranks", 2, "--out", one);
    assertThat(inProcess.code()).as(inProcess.err()).isZero();

    Ended ended = mpirun(family, "solve", "--poisson", "12", "--out", several.toString());
    assertThat(ended.code).as(ended.all()).isZero();
    assertThat(ended.out.lines().filter(line -> !line.startsWith("time")).findFirst())
        .as(ended.all())
        .hasValue(inProcess.out().lines().findFirst().orElseThrow());
    assertThat(Files.mismatch(one, several)).as("every digit").isEqualTo(-1);
    assertOnce(ended.out, "solved in", ended);
    assertThat(ended.out).contains("2 ranks");
    for (String step : List.of("read:", "set up:", "wrote", "using device")) {
      assertOnce(ended.err, step, ended);
    }
  }

  /** With them device buffers between processes, which pass through host memory. */
  @ParameterizedTest
  @EnumSource(names = {"OPEN_MPI", "MPICH"})
  void theExamplesOfTheGuideRunOnProcesses(Family family) throws Exception {
    List<String> command = new ArrayList<>(launcher(family).words(2, MpiLauncher.Binding.NONE));
    List<String> java = java(List.of("-Dfairlead.device=host"));
    java.set(java.size() - 1, "io.fairlead.cli.examples.Messages");
    command.addAll(java);
    Ended ended = run(command);
    assertThat(ended.code).as(ended.all()).isZero();
    assertThat(ended.out)
        .contains("rank 0 of 2: ring 1, sum 3.0", "rank 1 of 2: ring 0, sum 3.0")
        .contains("rank 0 of 2: work 1023, put [1, 2]", "rank 1 of 2: work 1023, put to rank 0")
        .contains("rank 0 of 2: spread 31, tasks 31", "rank 1 of 2: spread 31, tasks 31")
        .contains("rank 0 of 2: device true, affine 100", "rank 1 of 2: device true, affine 0");
  }

  @Test
  void aProcessByItselfIsOneRank() throws Exception {
    launcher(Family.OPEN_MPI); // where there is one, there is its library
    Ended ended = run(java(List.of("-Dfairlead.transport=mpi"), "solve", "--poisson", "8"));
    assertThat(ended.code).as(ended.all()).isZero();
    assertThat(ended.out).contains("solved in", "1 rank\n");
  }

  // --- what the command line gets wrong ---------------------------------------------------------

  @ParameterizedTest
  @EnumSource(names = {"OPEN_MPI", "MPICH"})
  void ranksAreTheLaunchersToSay(Family family) throws Exception {
    Ended ended = mpirun(family, "solve", "--poisson", "8", "--ranks", "3");
    assertThat(ended.code).as(ended.all()).isEqualTo(ExitCode.USAGE);
    assertOnce(ended.err, "The launcher started 2 ranks: leave --ranks out", ended);
    assertThat(ended.out).doesNotContain("solved");
  }

  /** Open MPI's launcher ends all when one has ended, and the one that speaks may be the last. */
  @ParameterizedTest
  @EnumSource(names = {"OPEN_MPI", "MPICH"})
  void theFirstRankSaysItHoweverSlowItIs(Family family) throws Exception {
    String slow = "test ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} != 0 || sleep 3; exec \"$@\"";
    List<String> command = new ArrayList<>(launcher(family).words(2, MpiLauncher.Binding.NONE));
    command.addAll(List.of("sh", "-c", slow, "sh"));
    command.addAll(java(List.of(), "solve", "--poisson", "8", "--ranks", "3"));
    Ended ended = run(command);
    assertThat(ended.code).as(ended.all()).isEqualTo(ExitCode.USAGE);
    assertOnce(ended.err, "The launcher started 2 ranks: leave --ranks out", ended);
  }

  @ParameterizedTest
  @EnumSource(names = {"OPEN_MPI", "MPICH"})
  void aMissingFileEndsAllWithOneMessage(Family family) throws Exception {
    Ended ended = mpirun(family, "solve", folder.resolve("missing.mtx").toString());
    assertThat(ended.code).as(ended.all()).isEqualTo(ExitCode.BAD_INPUT);
    assertOnce(ended.err, "missing.mtx:", ended);
    assertThat(ended.err).doesNotContain("bug in Fairlead");
  }

  /** On another host, say: the rank that misses it says so, and all end with its exit code. */
  @ParameterizedTest
  @EnumSource(names = {"OPEN_MPI", "MPICH"})
  void aFileThatOnlyOneRankMissesEndsAll(Family family) throws Exception {
    Ended ended =
        mpirun(
            family,
            List.of("solve", "--poisson", "8"),
            List.of("solve", folder.resolve("missing.mtx").toString()));
    assertOnce(ended.err, "missing.mtx:", ended);
    assertThat(ended.code).as(ended.all()).isEqualTo(ExitCode.BAD_INPUT);
  }

  @ParameterizedTest
  @EnumSource(names = {"OPEN_MPI", "MPICH"})
  void ranksWithDifferentSystemsDoNotBegin(Family family) throws Exception {
    Ended ended =
        mpirun(family, List.of("solve", "--poisson", "8"), List.of("solve", "--poisson", "9"));
    assertOnce(ended.err, "ranks have different systems to solve", ended);
    assertThat(ended.code).as(ended.all()).isEqualTo(ExitCode.BAD_INPUT);
  }

  // --- what fails -------------------------------------------------------------------------------

  /**
   * The other rank may be ended by the launcher before it can repeat it, and MPICH's may give back
   * the code of the one that it killed.
   */
  @ParameterizedTest
  @EnumSource(names = {"OPEN_MPI", "MPICH"})
  void aRankThatFailsEndsAllWithItsCause(Family family) throws Exception {
    Ended ended =
        mpirun(
            family,
            List.of("solve", "--poisson", "12"),
            List.of("solve", "--poisson", "12", "--device-memory", "64K"));
    assertThat(ended.code)
        .as(ended.all())
        .isIn(ExitCode.FAILURE, family == Family.MPICH ? KILLED : ExitCode.FAILURE);
    assertThat(ended.err).containsPattern("no room for|its limit is");
    assertThat(ended.out).doesNotContain("solved");
  }

  /** The launcher is told to let the others live, so that they have to see it themselves. */
  @ParameterizedTest
  @EnumSource(names = {"OPEN_MPI", "MPICH"})
  void whenARankIsKilledTheOthersSaySoAndEndWithFour(Family family) throws Exception {
    List<String> solve = List.of("solve", "--poisson", "12", "--jobs", "100000", "--at-once", "1");
    Path out = folder.resolve("out");
    Path err = folder.resolve("err");
    Process launched = start(watchedCommand(family, solve, solve), out, err);
    try {
      awaitThat(() -> text(err).contains("set up:"));
      ProcessHandle.of(Long.parseLong(text(watched(1)).strip())).orElseThrow().destroyForcibly();
      awaitThat(() -> Files.exists(watched(0, ".code")));
      assertThat(codeOf(0)).as(text(err)).isEqualTo(ExitCode.FAILURE);
      assertThat(text(err)).contains("rank 1 (process ").contains("has ended without a word");
    } finally {
      launched.descendants().forEach(ProcessHandle::destroyForcibly);
      launched.destroyForcibly();
    }
  }

  // --- what is missing --------------------------------------------------------------------------

  @Test
  void aMissingLibraryIsSaidWithWhatToInstall() throws Exception {
    String nowhere = "-Dfairlead.mpi.library=/nowhere/libmpi.so";
    Ended doctor = run(java(List.of(nowhere), "doctor"));
    assertThat(doctor.code).as(doctor.all()).isZero();
    assertThat(doctor.out)
        .contains("mpi: not here: /nowhere/libmpi.so cannot be loaded")
        .contains("install Open MPI (Debian: libopenmpi-dev openmpi-bin) or MPICH");

    Ended solve =
        run(java(List.of(nowhere, "-Dfairlead.transport=mpi"), "solve", "--poisson", "8"));
    assertThat(solve.code).as(solve.all()).isEqualTo(ExitCode.FAILURE);
    assertThat(solve.err)
        .contains("transport 'mpi' cannot be used: /nowhere/libmpi.so cannot be loaded")
        .contains("install Open MPI (Debian: libopenmpi-dev openmpi-bin) or MPICH")
        .doesNotContain("bug in Fairlead");
  }

  // --- starting ---------------------------------------------------------------------------------

  private static MpiLauncher launcher(Family family) {
    List<MpiLauncher> found = INSTALLED.stream().filter(each -> each.family() == family).toList();
    String reason =
        "NO LAUNCHER OF " + family + " (scripts/install-peers installs Open MPI and MPICH)";
    if (found.isEmpty()) {
      System.out.println("!! " + reason + ": the command was NOT run under it");
    }
    assumeTrue(!found.isEmpty(), reason);
    return found.getFirst();
  }

  private static List<String> java(List<String> options, String... arguments) {
    List<String> command = new ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    command.addAll(List.of("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"));
    command.addAll(List.of("--enable-native-access=ALL-UNNAMED"));
    command.addAll(List.of("--add-opens", "java.base/java.lang=ALL-UNNAMED"));
    command.addAll(options);
    command.addAll(List.of("-cp", System.getProperty("java.class.path"), Main.class.getName()));
    command.addAll(List.of(arguments));
    return command;
  }

  private Ended mpirun(Family family, String... arguments) throws Exception {
    List<String> command = new ArrayList<>(launcher(family).words(2, MpiLauncher.Binding.NONE));
    command.addAll(java(List.of(), arguments));
    return run(command);
  }

  /** Two ranks with a command line each. */
  private Ended mpirun(Family family, List<String> first, List<String> second) throws Exception {
    List<String> command = new ArrayList<>(launcher(family).words(1, MpiLauncher.Binding.NONE));
    command.addAll(java(List.of(), first.toArray(String[]::new)));
    command.addAll(List.of(":", "-n", "1"));
    command.addAll(java(List.of(), second.toArray(String[]::new)));
    return run(command);
  }

  private List<String> watchedCommand(Family family, List<String> first, List<String> second) {
    MpiLauncher launcher = launcher(family);
    List<String> command = new ArrayList<>(launcher.words(1, MpiLauncher.Binding.NONE));
    command.add(family == Family.MPICH ? "-disable-auto-cleanup" : "--enable-recovery");
    command.addAll(watchedRank(first));
    command.addAll(List.of(":", "-n", "1"));
    command.addAll(watchedRank(second));
    return command;
  }

  private List<String> watchedRank(List<String> arguments) {
    List<String> words =
        new ArrayList<>(List.of("sh", "-c", WATCHED, folder.resolve("rank").toString()));
    words.addAll(java(List.of(), arguments.toArray(String[]::new)));
    return words;
  }

  private Path watched(int rank, String suffix) {
    return folder.resolve("rank." + rank + suffix);
  }

  private Path watched(int rank) {
    return watched(rank, "");
  }

  private int codeOf(int rank) {
    Path file = watched(rank, ".code");
    awaitThat(() -> !text(file).isBlank());
    return Integer.parseInt(text(file).strip());
  }

  private Ended run(List<String> command) throws IOException, InterruptedException {
    Path out = folder.resolve("out");
    Path err = folder.resolve("err");
    Process process = start(command, out, err);
    try {
      boolean ended = process.waitFor(ENOUGH.toSeconds(), TimeUnit.SECONDS);
      assertThat(ended).as("it hangs; so far:\n%s\n%s", text(out), text(err)).isTrue();
      return new Ended(process.exitValue(), text(out), text(err));
    } finally {
      process.descendants().forEach(ProcessHandle::destroyForcibly);
      process.destroyForcibly();
    }
  }

  private static Process start(List<String> command, Path out, Path err) throws IOException {
    ProcessBuilder builder =
        new ProcessBuilder(command)
            .redirectInput(new File("/dev/null"))
            .redirectOutput(out.toFile())
            .redirectError(err.toFile());
    builder
        .environment()
        .putAll(Map.of("OMPI_ALLOW_RUN_AS_ROOT", "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"));
    return builder.start();
  }

  private static String text(Path file) {
    try {
      return Files.exists(file) ? Files.readString(file) : "";
    } catch (IOException e) {
      throw new AssertionError(e);
    }
  }

  private static void awaitThat(BooleanSupplier condition) {
    long deadline = System.nanoTime() + ENOUGH.toNanos();
    while (!condition.getAsBoolean()) {
      assertThat(System.nanoTime() - deadline).as("it takes too long").isNegative();
      LockSupport.parkNanos(Duration.ofMillis(10).toNanos());
    }
  }

  private static void assertOnce(String text, String words, Ended ended) {
    assertThat(text.split(java.util.regex.Pattern.quote(words), -1))
        .as("'%s' once in:\n%s", words, ended.all())
        .hasSize(2);
  }
}
