package io.fairlead.lab.race;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.lab.Repository;
import io.fairlead.lab.canary.LostUpdateRaceTest;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.openjdk.jcstress.infra.runners.TestList;

/**
 * Runs every race test of the lab in one jcstress process, then reads from its output how each
 * went.
 *
 * <p>Shortly by default: one fork, two iterations of 200 ms, one JVM configuration; finding the
 * CPUs and JVM options costs jcstress about 15 s before. With {@code -Dfairlead.races.long=true}
 * with each compiler and all options that jcstress knows, half a minute a test.
 */
class RaceSuiteTest {
  private static final String CANARY = LostUpdateRaceTest.class.getName();
  private static final boolean LONG = Boolean.getBoolean("fairlead.races.long");
  private static final long LIMIT_MINUTES = LONG ? 120 : 8;

  /** The runs of the canary alone, of less than a minute each. */
  private static final int CANARY_ATTEMPTS = 3;

  /** What jcstress starts a line with when it reports a result of a test. */
  private static final Pattern RESULT = Pattern.compile("\\.+ \\[([A-Z ]+)] (\\S+)");

  private static String output;

  static List<String> raceTests() {
    return TestList.tests().stream().filter(test -> !test.equals(CANARY)).sorted().toList();
  }

  @BeforeAll
  @Timeout(value = 3, unit = TimeUnit.HOURS) // the process has its own limit, below
  static void runAll() throws IOException, InterruptedException {
    output = runJcstress("all", howLong());
  }

  private static String runJcstress(String name, List<String> options)
      throws IOException, InterruptedException {
    Path folder = Repository.root().resolve("fairlead-lab/target/jcstress");
    Files.createDirectories(folder);
    Path log = folder.resolve(name + ".txt");
    Process process =
        new ProcessBuilder(command(folder, options))
            .directory(folder.toFile())
            .redirectErrorStream(true)
            .redirectOutput(log.toFile())
            .start();
    process.getOutputStream().close();
    boolean ended = process.waitFor(LIMIT_MINUTES, TimeUnit.MINUTES);
    if (!ended) {
      process.descendants().forEach(ProcessHandle::destroyForcibly);
      process.destroyForcibly();
    }
    assertThat(ended).as("jcstress ended within %s min; see %s", LIMIT_MINUTES, log).isTrue();
    return Files.readString(log);
  }

  /** On a busy machine the actors may never meet within the short run of all, so it is tried on. */
  @Test
  @Timeout(value = 1, unit = TimeUnit.HOURS) // each process has its own limit
  void theCanaryIsCaught() throws IOException, InterruptedException {
    List<String> seen = results(CANARY, output);
    for (int attempt = 1; attempt <= CANARY_ATTEMPTS && !seen.contains("FAILED"); attempt++) {
      List<String> longer = new ArrayList<>(briefly(10, 1000));
      longer.addAll(List.of("-t", Pattern.quote(CANARY)));
      seen = results(CANARY, runJcstress("canary" + attempt, longer));
    }
    assertThat(seen).as("the test that loses updates").contains("FAILED");
  }

  @ParameterizedTest
  @MethodSource("raceTests")
  void onlyAllowedOutcomesAreSeen(String test) {
    assertThat(results(test, output)).as("%s\n%s", test, output).isNotEmpty().containsOnly("OK");
  }

  private static List<String> results(String test, String output) {
    return RESULT
        .matcher(output)
        .results()
        .filter(result -> result.group(2).equals(test))
        .map(result -> result.group(1))
        .distinct()
        .toList();
  }

  private static List<String> howLong() {
    return LONG ? atLength() : briefly(2, 200);
  }

  /**
   * One fork in each of jcstress's configurations of the JVM. Both actors are compiled alike: each
   * with each compiler beside the other would be nine times as many, hours for all tests together
   * on two cores.
   */
  private static List<String> atLength() {
    return List.of("-m", "default", "-sc", "false", "-fsm", "1", "-time", "500");
  }

  /** In one fork and one configuration. */
  private static List<String> briefly(int iterations, int millis) {
    return List.of(
        "-f",
        "1",
        "-iters",
        Integer.toString(iterations),
        "-time",
        Integer.toString(millis),
        "-sc",
        "false",
        "-jvmArgs",
        "-XX:+UseSerialGC");
  }

  private static List<String> command(Path folder, List<String> options) {
    List<String> command = new ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    command.addAll(List.of("--enable-native-access=ALL-UNNAMED", "-cp"));
    command.add(System.getProperty("java.class.path"));
    command.addAll(List.of("org.openjdk.jcstress.Main", "-v", "-r", folder.toString()));
    // own carriers, in every configuration
    command.addAll(List.of("-jvmArgsPrepend", "--add-opens=java.base/java.lang=ALL-UNNAMED"));
    command.addAll(options);
    return command;
  }
}
