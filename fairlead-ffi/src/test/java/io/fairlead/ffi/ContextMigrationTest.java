package io.fairlead.ffi;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.device.DeviceConfig;
import io.fairlead.device.DeviceContext;
import io.fairlead.device.ModuleSource;
import io.fairlead.device.spi.Driver;
import io.fairlead.task.TaskConfig;
import io.fairlead.task.TaskRuntime;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Ten thousand tasks, two contexts of ours and a foreign one, over the stand-in: 10 calls each,
 * with {@code -Dfairlead.long=true} 1,000.
 */
@Timeout(600)
@EnabledOnOs(OS.LINUX)
class ContextMigrationTest {
  private static final long SEED = 20_261_130;
  private static final int TASKS = 10_000;
  private static final int CALLS = Boolean.getBoolean("fairlead.long") ? 1_000 : 10;

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void eachCallHasItsContextAndLeavesTheOther(boolean old) {
    StandInLibrary standIn = StandInLibrary.get();
    standIn.reset();
    standIn.devices(3);
    standIn.oldDriver(old);
    String library = standIn.path().toString();
    try (TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT);
        Driver driver = new CudaDriverProvider(library).open(Map.of());
        RawContexts raw = new RawContexts(library, 2);
        DeviceContext one = DeviceContext.open(tasks, driver, 0, DeviceConfig.defaults());
        DeviceContext two = DeviceContext.open(tasks, driver, 1, DeviceConfig.defaults())) {
      ModuleSource code = new ModuleSource("rules", List.of(CudaKernels.STAND_IN));
      ContextMigration.Outcome outcome =
          new ContextMigration(tasks, raw, List.of(one, two), code).run(TASKS, CALLS, SEED);
      assertThat(outcome.calls()).isEqualTo((long) TASKS * CALLS);
      assertThat(outcome.wrongInside()).as("calls without their context").isZero();
      assertThat(outcome.wrongAfter()).as("contexts that were not put back").isZero();
    }
    assertThat(standIn.traps()).isEmpty();
    standIn.reset();
  }
}
