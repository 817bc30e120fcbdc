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
            "cuda.launch",
            "cuda.wait.many.lost",
            "cuda.wait.many.p99",
            "cuda.wait.many.first",
            "cuda.wait.many.last",
            "cuda.fault.last");
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

  @Test
  void theDeviceIsChosenWhereThereIsAChoice() {
    Run unknown = Run.fairlead("bench", "memory", "--device", "abacus");
    assertThat(unknown.code()).isEqualTo(ExitCode.USAGE);
    assertThat(unknown.err()).contains("host, cuda, auto", "abacus");
    Run fixed = Run.fairlead("bench", "host", "--device", "host");
    assertThat(fixed.code()).isEqualTo(ExitCode.USAGE);
    assertThat(fixed.err()).contains("--device", "the suite host");
    Run nowhere = Run.fairlead("bench", "spill", "--directory", "no/such/folder");
    assertThat(nowhere.code()).isEqualTo(ExitCode.USAGE);
    assertThat(nowhere.err()).contains("no/such/folder");
    Run listed =
        Run.fairlead("bench", "memory", "--device", "host", "--list", "--only", "memory.alloc");
    assertThat(listed.code()).isEqualTo(ExitCode.OK);
    assertThat(listed.out().lines().skip(1).map(String::strip))
        .containsExactly("memory.alloc", "memory.alloc.used", "memory.alloc.full");
  }

  @Test
  void onlyTheRowsThatAreNamedAreMeasured() {
    Run run =
        Run.fairlead(
            "bench", "memory", "--device", "host", "--quick", "--only", "memory.ledger.calls");
    assertThat(run.code()).isEqualTo(ExitCode.OK);
    assertThat(run.out()).contains("memory.ledger.calls").doesNotContain("memory.ledger.read");
  }
}
