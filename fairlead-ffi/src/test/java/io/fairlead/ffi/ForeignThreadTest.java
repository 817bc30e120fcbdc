package io.fairlead.ffi;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.DeviceConfig;
import io.fairlead.device.DeviceContext;
import io.fairlead.device.DeviceException;
import io.fairlead.device.DeviceLostException;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.Kernel;
import io.fairlead.device.ModuleSource;
import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverException;
import io.fairlead.task.TaskConfig;
import io.fairlead.task.TaskRuntime;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * A thread of somebody else's, with a context of its own current, does all there is to do with a
 * device: after each step its own context is current again. With a driver that demands a current
 * context of few calls, and with one that does of each.
 */
@Timeout(60)
@EnabledOnOs(OS.LINUX)
class ForeignThreadTest {
  private static final ModuleSource SOURCE =
      new ModuleSource("rules", List.of(CudaKernels.STAND_IN));

  private final StandInLibrary standIn = StandInLibrary.get();
  private final TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT);
  private Driver driver;
  private RawContexts raw;

  @BeforeEach
  void open() {
    standIn.reset();
  }

  private void open(boolean old) {
    standIn.oldDriver(old);
    driver = new CudaDriverProvider(standIn.path().toString()).open(Map.of());
    raw = new RawContexts(standIn.path().toString(), 1);
  }

  @AfterEach
  void close() {
    raw.makeCurrent(0);
    raw.close();
    driver.close();
    tasks.close();
    assertThat(standIn.traps()).isEmpty();
    standIn.assertNothingIsLeft();
    standIn.reset();
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void itsContextStaysCurrent(boolean old) {
    open(old);
    ForeignWork work = new ForeignWork(tasks, driver, raw, SOURCE);
    work.run(context -> refusals(work, context));
    tasks.enter(
        "foreign",
        0,
        () -> {
          work.run(context -> refusals(work, context));
          return null;
        });
    work.kept("all");
  }

  private void refusals(ForeignWork work, DeviceContext context) {
    Kernel nop = context.load(SOURCE).kernel("nop");
    standIn.failNext("cuLaunchKernel", DriverException.INVALID_VALUE, 1);
    assertThatThrownBy(() -> nop.launch(CudaKernels.ALONE)).isInstanceOf(DeviceException.class);
    work.kept("a refused launch");
    standIn.failNext("cuMemHostRegister_v2", DriverException.OUT_OF_MEMORY, 1);
    standIn.failNext("cuMemHostAlloc", DriverException.OUT_OF_MEMORY, 1);
    assertThatThrownBy(() -> context.hostBlocks().take(64 << 20))
        .isInstanceOf(DeviceException.class);
    work.kept("refused memory");
    assertThatThrownBy(() -> context.load(SOURCE).kernel("none"))
        .isInstanceOf(DeviceException.class);
    work.kept("no such kernel");
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void itsContextStaysCurrentWhenOursIsLost(boolean old) {
    open(old);
    ForeignWork work = new ForeignWork(tasks, driver, raw, SOURCE);
    try (DeviceContext context = DeviceContext.open(tasks, driver, 0, DeviceConfig.defaults())) {
      DeviceStream stream = context.stream();
      context.load(SOURCE).kernel("nullstore").launch(stream, CudaKernels.ALONE);
      assertThatThrownBy(() -> stream.reached().await()).isInstanceOf(DeviceLostException.class);
      work.kept("a fault");
      assertThatThrownBy(() -> context.openStream(0)).isInstanceOf(DeviceLostException.class);
      assertThatThrownBy(stream::checkpoint).isInstanceOf(DeviceLostException.class);
      work.kept("calls after it");
    }
    work.kept("the end of a lost context");
  }
}
