package io.fairlead.ffi;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.device.DeviceConfig;
import io.fairlead.device.DeviceContext;
import io.fairlead.device.ModuleSource;
import io.fairlead.device.spi.Driver;
import io.fairlead.task.TaskConfig;
import io.fairlead.task.TaskRuntime;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * Row cuda.context: 10,000 tasks make ten million calls of the primary context of each GPU (of two
 * at most) beside a context that Fairlead did not make. Prints how it went.
 */
@Timeout(300)
class ContextMigrationGpuTest {
  private static final long SEED = 20_261_130;
  private static final int TASKS = 10_000;
  private static final int CALLS = 1_000;

  @Test
  void eachCallHasItsContextAndLeavesTheOther() {
    try (Driver driver = CudaGpu.open();
        TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT);
        RawContexts raw = new RawContexts("libcuda.so.1", 0)) {
      List<DeviceContext> contexts = new ArrayList<>();
      try {
        for (int i = 0; i < Math.min(2, driver.deviceCount()); i++) {
          contexts.add(DeviceContext.open(tasks, driver, i, DeviceConfig.defaults()));
        }
        ModuleSource code = new ModuleSource("rules", List.of(CudaKernels.PTX));
        ContextMigration.Outcome outcome =
            new ContextMigration(tasks, raw, contexts, code).run(TASKS, CALLS, SEED);
        System.out.printf(
            Locale.ROOT,
            "cuda.context: %d calls by %d tasks on %d contexts of ours and a foreign one: %d had"
                + " not theirs, %d were not put back; %.1f s%n",
            outcome.calls(),
            TASKS,
            contexts.size(),
            outcome.wrongInside(),
            outcome.wrongAfter(),
            outcome.nanos() * 1e-9);
        assertThat(outcome.calls()).isEqualTo((long) TASKS * CALLS);
        assertThat(outcome.wrongInside()).as("calls without their context").isZero();
        assertThat(outcome.wrongAfter()).as("contexts that were not put back").isZero();
      } finally {
        contexts.forEach(DeviceContext::close);
      }
    }
  }
}
