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
 * CPUs and JVM options costs jcstress about 15 s before. With {@code -Dfairlead.long=true} its
 * default mode: all compilation modes, several forks.
 */
class RaceSuiteTest {
  private static final String CANARY = LostUpdateRaceTest.class.getName();
  private static final boolean LONG = Boolean.getBoolean("fairlead.long");
  private static final long LIMIT_MINUTES = LONG ? 120 : 8;

  /** What jcstress starts a line with when it reports a result of a test. */
  private static final Pattern RESULT = Pattern.compile("\\.+ \\[([A-Z ]+)] (\\S+)");

  private static String output;

  static List<String> raceTests() {
    return TestList.tests().stream().filter(test -> !test.equals(CANARY)).sorted().toList();
  }

  @BeforeAll
  @Timeout(value = 3, unit = TimeUnit.HOURS) // the process has its own limit, below
  static void runJcstress() throws IOException, InterruptedException {
    Path folder = Repository.root().resolve("fairlead-lab/target/jcstress");
    Files.createDirectories(folder);
    Path log = folder.resolve("output.txt");
    Process process =
        new ProcessBuilder(command(folder))
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
    output = Files.readString(log);
    assertThat(ended).as("jcstress ended within %s min; see %s", LIMIT_MINUTES, log).isTrue();
  }

  @Test
  void theCanaryIsCaught() {
    assertThat(results(CANARY)).as("the test that loses updates").contains("FAILED");
  }

  @ParameterizedTest
  @MethodSource("raceTests")
  void onlyAllowedOutcomesAreSeen(String test) {
    assertThat(results(test)).as("%s\n%s", test, output).isNotEmpty().containsOnly("OK");
  }

  private static List<String> results(String test) {
    return RESULT
        .matcher(output)
        .results()
        .filter(result -> result.group(2).equals(test))
        .map(result -> result.group(1))
        .distinct()
        .toList();
  }

  private static List<String> command(Path folder) {
    List<String> command = new ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    command.addAll(List.of("--enable-native-access=ALL-UNNAMED", "-cp"));
    command.add(System.getProperty("java.class.path"));
    command.addAll(List.of("org.openjdk.jcstress.Main", "-v", "-r", folder.toString()));
    if (LONG) {
      command.addAll(List.of("-m", "default"));
    } else {
      command.addAll(List.of("-f", "1", "-iters", "2", "-time", "200", "-sc", "false"));
      command.addAll(List.of("-jvmArgs", "-XX:+UseSerialGC"));
    }
    return command;
  }
}
