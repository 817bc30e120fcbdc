package io.fairlead.ffi;

import static io.fairlead.device.Param.F64;
import static io.fairlead.device.Param.in;
import static io.fairlead.device.Param.inOut;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.DeviceConfig;
import io.fairlead.device.DeviceContext;
import io.fairlead.device.DeviceException;
import io.fairlead.device.DeviceLostException;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.HostBlock;
import io.fairlead.device.Kernel;
import io.fairlead.device.KernelModule;
import io.fairlead.device.ModuleSource;
import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverException;
import io.fairlead.device.spi.Grid;
import io.fairlead.memory.Device;
import io.fairlead.memory.DeviceBuffer;
import io.fairlead.memory.MemoryConfig;
import io.fairlead.task.TaskConfig;
import io.fairlead.task.TaskRuntime;
import io.fairlead.task.TaskScope;
import io.fairlead.task.WaitMode;
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
  private static final int COUNT = 1_000;

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
    raw.makeCurrent(raw.foreign());
  }

  @AfterEach
  void close() {
    raw.makeCurrent(0);
    raw.close();
    driver.close();
    tasks.close();
    assertThat(standIn.traps()).isEmpty();
    for (StandInLibrary.Live kind : StandInLibrary.Live.values()) {
      assertThat(standIn.live(kind)).as("%s that are left", kind).isZero();
    }
    standIn.reset();
  }

  private void kept(String after) {
    assertThat(raw.current()).as("current after: %s", after).isEqualTo(raw.foreign());
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void itsContextStaysCurrent(boolean old) {
    open(old);
    work();
    tasks.enter(
        "foreign",
        0,
        () -> {
          work();
          return null;
        });
    kept("all");
  }

  private void work() {
    try (DeviceContext context = DeviceContext.open(tasks, driver, 0, DeviceConfig.defaults())) {
      kept("open");
      streams(context);
      memory(context);
      code(context);
      refusals(context);
    }
    kept("close");
  }

  private void streams(DeviceContext context) {
    DeviceStream one = context.stream();
    kept("the shared stream");
    try (DeviceStream two = context.openStream(1)) {
      kept("a stream of its own");
      Kernel spin = context.load(SOURCE).kernel("spin", io.fairlead.device.Param.I64);
      kept("load, kernel");
      for (WaitMode mode : WaitMode.values()) {
        spin.launch(one, CudaKernels.ALONE, 100_000L);
        kept("launch");
        two.after(one.mark());
        kept("an edge");
        spin.launch(two, CudaKernels.ALONE, 100_000L);
        two.reached().await(mode);
        kept("a wait, " + mode);
      }
      one.checkpoint();
      kept("checkpoint");
      DeviceStream adopted = context.adoptStream(two.handle());
      adopted.reached().await();
      adopted.close();
      kept("an adopted stream");
    }
    context.reached().await();
    kept("the end of a stream");
  }

  private void memory(DeviceContext context) {
    Device device = Device.open(tasks, context, MemoryConfig.defaults());
    kept("memory info");
    try (DeviceBuffer x = device.allocate(8L * COUNT);
        DeviceBuffer y = device.allocate(8L * COUNT);
        HostBlock block = context.hostBlocks().take(8L * COUNT)) {
      kept("allocations");
      x.upload(new double[COUNT]);
      kept("upload");
      y.fill((byte) 0);
      y.copyFrom(x);
      kept("fill and copy");
      y.downloadTo(block).await();
      assertThat(y.toDoubles()).isEqualTo(new double[COUNT]);
      kept("download");
    }
    context.reached().await();
    kept("frees");
    device.memory();
    kept("statistics");
  }

  private void code(DeviceContext context) {
    Device device = Device.open(tasks, context, MemoryConfig.defaults());
    KernelModule module = context.load(SOURCE);
    Kernel axpy = module.kernel("axpy", F64, in(F64), inOut(F64));
    kept("kernel");
    try (DeviceBuffer x = device.allocate(8L * COUNT);
        DeviceBuffer y = device.allocate(8L * COUNT)) {
      x.fill((byte) 0);
      y.fill((byte) 0);
      try (TaskScope<Void> scope = tasks.scope()) {
        scope.fork(
            () -> {
              axpy.launch(Grid.of(COUNT), 2.0, x, y);
              return null;
            });
        scope.join();
      }
      kept("a child's launch");
      y.download(found -> found).await();
      kept("download");
    }
    module.close();
    context.reached().await();
    kept("the end of a module");
  }

  private void refusals(DeviceContext context) {
    Kernel nop = context.load(SOURCE).kernel("nop");
    standIn.failNext("cuLaunchKernel", DriverException.INVALID_VALUE, 1);
    assertThatThrownBy(() -> nop.launch(CudaKernels.ALONE)).isInstanceOf(DeviceException.class);
    kept("a refused launch");
    standIn.failNext("cuMemHostAlloc", DriverException.OUT_OF_MEMORY, 1);
    assertThatThrownBy(() -> context.hostBlocks().take(64 << 20))
        .isInstanceOf(DeviceException.class);
    kept("refused memory");
    assertThatThrownBy(() -> context.load(SOURCE).kernel("none"))
        .isInstanceOf(DeviceException.class);
    kept("no such kernel");
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void itsContextStaysCurrentWhenOursIsLost(boolean old) {
    open(old);
    try (DeviceContext context = DeviceContext.open(tasks, driver, 0, DeviceConfig.defaults())) {
      DeviceStream stream = context.stream();
      context.load(SOURCE).kernel("nullstore").launch(stream, CudaKernels.ALONE);
      assertThatThrownBy(() -> stream.reached().await()).isInstanceOf(DeviceLostException.class);
      kept("a fault");
      assertThatThrownBy(() -> context.openStream(0)).isInstanceOf(DeviceLostException.class);
      assertThatThrownBy(stream::checkpoint).isInstanceOf(DeviceLostException.class);
      kept("calls after it");
    }
    kept("the end of a lost context");
  }
}
