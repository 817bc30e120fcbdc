package io.fairlead.cli;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

class BenchCommandTest {
  @Test
  void rowsAreNamedByIdOrByABeginning() {
    Run listed =
        Run.fairlead(
            "bench",
            "cuda",
            "--list",
            "--only",
            "cuda.launch,cuda.wait.many",
            "--only=cuda.fault.last");
    assertThat(listed.code()).isEqualTo(ExitCode.OK);
    assertThat(listed.out().lines().skip(1).map(String::strip))
        .containsExactly(
            "cuda.launch", "cuda.wait.many.lost", "cuda.wait.many.p99", "cuda.fault.last");
  }

  @Test
  void aRowThatIsNotThereIsRefused() {
    // "cuda.wait.m" is no beginning before a point
    for (String name : new String[] {"cuda.nothing", "cuda.wait.m", ""}) {
      Run run = Run.fairlead("bench", "cuda", "--only", name);
      assertThat(run.code()).isEqualTo(ExitCode.USAGE);
      assertThat(run.err()).contains("no row '" + name + "'", "--list");
    }
  }

  @Test
  void aSuiteThatMeasuresAllTakesNoRows() {
    Run run = Run.fairlead("bench", "host", "--only", "host.launch_rate");
    assertThat(run.code()).isEqualTo(ExitCode.USAGE);
    assertThat(run.err()).contains("--only", "host");
  }
}
