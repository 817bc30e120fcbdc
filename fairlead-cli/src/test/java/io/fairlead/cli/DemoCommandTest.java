package io.fairlead.cli;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Row 002.2: tasks that migrate, shown. */
@Timeout(60)
class DemoCommandTest {
  @Test
  void nothingIsLostWhereverTasksGoOn() {
    Run run = Run.fairlead("demo", "migration", "--tasks", "2000");
    assertThat(run.code()).as(run.err()).isZero();
    assertThat(run.out())
        .contains("2,000 tasks yielded once")
        .contains("went on on another thread")
        .contains("0 lost their identity or their task local");
  }

  @Test
  void anotherDemoIsRefused() {
    Run run = Run.fairlead("demo", "magic");
    assertThat(run.code()).isEqualTo(2);
    assertThat(run.err()).contains("There is no demo 'magic'. Try: migration");
  }
}
