package io.fairlead.cli.bench;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

class TaskSuiteTest {

  @Test
  void twoCoresHaveNoRowsOfTheirOwn() {
    assertThat(TaskSuite.idsOnMore(1)).isEmpty();
    assertThat(TaskSuite.idsOnMore(2)).isEmpty();
  }

  @Test
  void moreCoresHaveARowForEachNumberOfThreads() {
    assertThat(TaskSuite.idsOnMore(16))
        .contains("tasks.pfib31.millis.1thread", "tasks.pfib31.millis.2threads")
        .contains("tasks.pfib31.speedup.4threads", "tasks.pfib31.speedup.16threads")
        .contains("tasks.pfib31.ratio_fjp.8threads", "tasks.notify.p50.1thread")
        .doesNotContain("tasks.pfib31.speedup.2threads", "tasks.notify.p50.2threads")
        .doesNotHaveDuplicates();
    assertThat(TaskSuite.idsOnMore(12))
        .contains("tasks.notify.busy_p99.8threads")
        .noneMatch(id -> id.contains("12") || id.contains("16"));
  }
}
