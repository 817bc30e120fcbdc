package io.fairlead.device;

import io.fairlead.device.spi.JavaKernel;
import io.fairlead.task.TaskConfig;
import io.fairlead.task.TaskRuntime;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;

/** A runtime and one device on a fake driver, closed in order. */
final class World implements AutoCloseable {
  static final long PATIENCE_NANOS = 20_000_000_000L;

  final TaskRuntime tasks;
  final FakeDriver driver;
  final DeviceContext context;

  World(FakeDriver driver, DeviceConfig config) {
    this.driver = driver;
    this.tasks = TaskRuntime.open(TaskConfig.DEFAULT);
    this.context = DeviceContext.open(tasks, driver, 0, config);
  }

  World(FakeDriver driver) {
    this(driver, DeviceConfig.defaults());
  }

  /** A kernel that the fake driver only writes down. */
  Kernel kernel(String name, Param... params) {
    Map<String, JavaKernel> kernels = new HashMap<>();
    kernels.put(name, (arguments, begin, end) -> {});
    return context.load(ModuleSource.java("module of " + name, kernels)).kernel(name, params);
  }

  /** Enqueues an operation that is only a name. */
  static long work(DeviceStream stream, String name) {
    FakeDriver driver = (FakeDriver) stream.context().driver();
    return stream.enqueue(
        io.fairlead.device.spi.DriverCall.LAUNCH,
        name,
        (handle, addresses) -> driver.named(handle, name));
  }

  /** Waits, with a bound, for something that another thread does. */
  static void until(String what, BooleanSupplier condition) {
    long deadline = System.nanoTime() + PATIENCE_NANOS;
    while (!condition.getAsBoolean()) {
      if (System.nanoTime() > deadline) {
        throw new AssertionError("waited in vain until " + what);
      }
      LockSupport.parkNanos(100_000);
    }
  }

  @Override
  public void close() {
    driver.automatic();
    context.close();
    tasks.close();
    driver.close();
  }
}
