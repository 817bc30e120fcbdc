package io.fairlead.ffi;

import static io.fairlead.device.Param.I64;
import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.device.DeviceConfig;
import io.fairlead.device.DeviceContext;
import io.fairlead.device.Kernel;
import io.fairlead.device.ModuleSource;
import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.Grid;
import io.fairlead.host.HostDriverProvider;
import io.fairlead.task.TaskConfig;
import io.fairlead.task.TaskRuntime;
import io.fairlead.task.TaskScope;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.Map;
import java.util.SplittableRandom;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;

/**
 * Rows 001.1 and 001.3 on the embedded device, in strict mode, with contexts per operating-system
 * thread: ten thousand tasks, random yields, no context error, few threads.
 */
@EnabledOnOs({OS.LINUX, OS.MAC})
@SuppressWarnings("ThreadPriorityCheck") // yielding is what brings a task to another carrier
class ContextOnOsThreadsTest {
  private static final long SEED = 20_261_129;
  private static final int TASKS = 10_000;

  /** Carriers, owner, poller, cleaner, workers and what the JDK starts by itself. */
  private static final int THREADS_MAX = 24;

  @Test
  void tenThousandTasksCallTheDeviceFromEverywhere() throws Exception {
    System.out.println("seed " + SEED);
    LongAdder sum = new LongAdder();
    ModuleSource source =
        ModuleSource.java(
            "add", Map.of("add", (arguments, begin, end) -> sum.add(arguments.i64(0))));
    ThreadMXBean threads = ManagementFactory.getThreadMXBean();
    try (TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT);
        Driver driver = new HostDriverProvider().open(Map.of("workers", "2", "strict", "true"));
        DeviceContext context = DeviceContext.open(tasks, driver, 0, DeviceConfig.defaults());
        TaskScope<Void> scope = tasks.scope()) {
      Kernel add = context.load(source).kernel("add", I64);
      threads.resetPeakThreadCount();
      int before = threads.getThreadCount();
      for (int i = 0; i < TASKS; i++) {
        SplittableRandom random = new SplittableRandom(SEED + i);
        scope.fork(
            () -> {
              for (int round = 0; round < 3; round++) {
                yieldAtRandom(random);
                add.launch(Grid.of(1), 1L);
                yieldAtRandom(random);
                if (random.nextInt(4) == 0) {
                  context.stream().reached().await();
                }
              }
              context.stream().reached().await();
              return null;
            });
      }
      scope.join();
      assertThat(sum.sum()).isEqualTo(3L * TASKS);
      assertThat(threads.getPeakThreadCount() - before).isLessThan(THREADS_MAX);
    }
  }

  private static void yieldAtRandom(SplittableRandom random) {
    switch (random.nextInt(4)) {
      case 0 -> Thread.yield();
      case 1 -> LockSupport.parkNanos(1 + random.nextInt(20_000));
      default -> {}
    }
  }
}
