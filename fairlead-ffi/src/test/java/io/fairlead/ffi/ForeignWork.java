package io.fairlead.ffi;

import static io.fairlead.device.Param.F64;
import static io.fairlead.device.Param.I64;
import static io.fairlead.device.Param.in;
import static io.fairlead.device.Param.inOut;
import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.device.DeviceConfig;
import io.fairlead.device.DeviceContext;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.HostBlock;
import io.fairlead.device.Kernel;
import io.fairlead.device.KernelModule;
import io.fairlead.device.ModuleSource;
import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.Grid;
import io.fairlead.memory.Device;
import io.fairlead.memory.DeviceBuffer;
import io.fairlead.memory.MemoryConfig;
import io.fairlead.task.TaskRuntime;
import io.fairlead.task.TaskScope;
import io.fairlead.task.WaitMode;
import java.util.function.Consumer;

/**
 * All there is to do with a device, on a thread of somebody else's that has a context of its own
 * current: after each step that is current again.
 */
final class ForeignWork {
  private static final int COUNT = 1_000;

  private final TaskRuntime tasks;
  private final Driver driver;
  private final RawContexts raw;
  private final ModuleSource source;

  /**
   * Makes the foreign context current.
   *
   * @param source has the kernels of {@link CudaKernels}
   */
  ForeignWork(TaskRuntime tasks, Driver driver, RawContexts raw, ModuleSource source) {
    this.tasks = tasks;
    this.driver = driver;
    this.raw = raw;
    this.source = source;
    raw.makeCurrent(raw.foreign());
  }

  /** Fails unless the thread still has its context. */
  void kept(String after) {
    assertThat(raw.current()).as("current after: %s", after).isEqualTo(raw.foreign());
  }

  /**
   * Opens the first device, uses it and closes it.
   *
   * @param more what else is to be tried
   */
  void run(Consumer<DeviceContext> more) {
    try (DeviceContext context = DeviceContext.open(tasks, driver, 0, DeviceConfig.defaults())) {
      kept("open");
      streams(context);
      memory(context);
      code(context);
      more.accept(context);
    }
    kept("close");
  }

  private void streams(DeviceContext context) {
    DeviceStream one = context.stream();
    kept("the shared stream");
    try (DeviceStream two = context.openStream(1)) {
      kept("a stream of its own");
      Kernel spin = context.load(source).kernel("spin", I64);
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
    KernelModule module = context.load(source);
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
}
