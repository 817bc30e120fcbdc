package io.fairlead.device;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.DriverException;
import io.fairlead.device.spi.Grid;
import io.fairlead.fault.Mutant;
import io.fairlead.task.TaskScope;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.EnumSet;
import java.util.SplittableRandom;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Rows 001.1 and 001.3: any number of tasks, anywhere, with the context current where needed. */
class CurrentContextTest {
  private static final long SEED = 20_261_129;
  private static final int TASKS = 10_000;

  /** Carriers, owner, poller, cleaner, the fake device and what the JDK starts by itself. */
  private static final int THREADS_MAX = 24;

  @Test
  void tenThousandTasksCallTheDeviceFromEverywhere() throws Exception {
    ThreadMXBean threads = ManagementFactory.getThreadMXBean();
    try (World world = new World(FakeDriver.strict().quiet())) {
      Kernel kernel = world.kernel("axpy", Param.F64, Param.in(Param.F64), Param.inOut(Param.F64));
      threads.resetPeakThreadCount();
      int before = threads.getThreadCount();
      runTasks(world, kernel, TASKS);
      assertThat(threads.getPeakThreadCount() - before).isLessThan(THREADS_MAX);
      assertThat(world.context.stats().launches()).isEqualTo(3L * TASKS);
      assertThat(world.context.stats().streamsCreated())
          .isLessThanOrEqualTo(DeviceConfig.STREAMS_MAX);
    }
  }

  @Test
  void theMutantThatSkipsTheGuardIsFound() {
    try (World world = new World(FakeDriver.strict().quiet())) {
      Kernel kernel = world.kernel("axpy", Param.F64, Param.in(Param.F64), Param.inOut(Param.F64));
      world.context.stream();
      try (Mutant.Handle _ = Mutant.enable("device.guard.skip")) {
        assertThatThrownBy(() -> runTasks(world, kernel, 100))
            .isInstanceOf(DeviceException.class)
            .hasMessageContaining("INVALID_CONTEXT (201)");
      }
    }
  }

  private static void runTasks(World world, Kernel kernel, int count) throws Exception {
    System.out.println("seed " + SEED);
    try (TaskScope<Void> scope = world.tasks.scope()) {
      for (int i = 0; i < count; i++) {
        SplittableRandom random = new SplittableRandom(SEED + i);
        scope.fork(
            () -> {
              runTask(world, kernel, random);
              return null;
            });
      }
      scope.join();
    }
  }

  private static void runTask(World world, Kernel kernel, SplittableRandom random) {
    FakeBuffer x = new FakeBuffer(1, 800);
    FakeBuffer y = new FakeBuffer(2, 800);
    if (random.nextInt(8) == 0) {
      x.onAcquire(stream -> maybeYield(random)); // under the turn, where a task may suspend
    }
    for (int i = 0; i < 3; i++) {
      maybeYield(random);
      kernel.launch(Grid.of(100), 2.0, x, y);
      maybeYield(random);
      if (random.nextInt(4) == 0) {
        world.context.stream().reached().await();
      }
    }
  }

  @SuppressWarnings("ThreadPriorityCheck") // yields are what the test is about
  private static void maybeYield(SplittableRandom random) {
    switch (random.nextInt(4)) {
      case 0 -> Thread.yield();
      case 1 -> LockSupport.parkNanos(1 + random.nextInt(20_000));
      default -> {}
    }
  }

  @Test
  void whatWasCurrentForForeignCodeIsRestored() {
    try (World world = new World(FakeDriver.strict())) {
      world.driver.makeCurrent(77);
      World.work(world.context.stream(), "work");
      assertThat(world.driver.current()).isEqualTo(77);
      world.context.driverCall(
          DriverCall.MEMORY_INFO,
          "ask for free memory",
          () -> {
            assertThat(world.driver.current()).isEqualTo(world.context.nativeContext());
            return null;
          });
      assertThat(world.driver.current()).isEqualTo(77);
    }
  }

  @Test
  void whatWasCurrentIsRestoredWhenTheCallFails() {
    try (World world = new World(FakeDriver.strict())) {
      DeviceStream stream = world.context.stream();
      world.driver.makeCurrent(77);
      world.driver.refuseNext(DriverCall.LAUNCH, DriverException.INVALID_VALUE, "INVALID_VALUE");
      assertThatThrownBy(() -> World.work(stream, "work"))
          .isInstanceOf(DeviceException.class)
          .hasMessageContaining("work on device 0, stream " + stream.id() + " failed");
      assertThat(world.driver.current()).isEqualTo(77);
    }
  }

  @Test
  void nothingIsBoundWhereTheDriverNeedsNoContext() {
    FakeDriver driver = new FakeDriver(true, EnumSet.of(DriverCall.STREAM_CREATE));
    try (World world = new World(driver)) {
      DeviceStream stream = world.context.stream();
      world.driver.makeCurrent(77);
      stream.enqueue(
          DriverCall.LAUNCH,
          "work",
          (handle, addresses) -> assertThat(driver.current()).isEqualTo(77));
    }
  }

  @ParameterizedTest
  @EnumSource(
      value = DriverCall.class,
      names = {"HOST_ALLOC", "MODULE_LOAD", "KERNEL"})
  void creatingAndLoadingShiftToTheOwner(DriverCall call) {
    try (World world = new World(FakeDriver.strict())) {
      boolean[] onOwner = new boolean[1];
      world.context.driverCall(
          call,
          "create or load",
          () -> {
            onOwner[0] = world.context.owner().isOwnerThread();
            assertThat(world.driver.current()).isEqualTo(world.context.nativeContext());
            return null;
          });
      assertThat(onOwner[0]).isTrue();
    }
  }

  @Test
  void aStreamIsNotSynchronizedByACall() {
    try (World world = new World(FakeDriver.strict())) {
      assertThatThrownBy(
              () ->
                  world.context.driverCall(
                      DriverCall.STREAM_SYNCHRONIZE, "synchronize", () -> null))
          .isInstanceOf(IllegalArgumentException.class)
          .hasMessageContaining("stream.reached().await()");
    }
  }
}
