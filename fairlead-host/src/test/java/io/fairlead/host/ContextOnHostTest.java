package io.fairlead.host;

import static io.fairlead.device.Param.F64;
import static io.fairlead.device.Param.in;
import static io.fairlead.device.Param.inOut;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.Access;
import io.fairlead.device.DeviceConfig;
import io.fairlead.device.DeviceContext;
import io.fairlead.device.DeviceLostException;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.HostBlock;
import io.fairlead.device.Kernel;
import io.fairlead.device.ModuleSource;
import io.fairlead.device.Operand;
import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.Grid;
import io.fairlead.task.Completion;
import io.fairlead.task.ForkOptions;
import io.fairlead.task.Role;
import io.fairlead.task.TaskConfig;
import io.fairlead.task.TaskRuntime;
import io.fairlead.task.TaskScope;
import io.fairlead.task.WaitMode;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** The device layer on the embedded device: real work, from tasks, in every wait mode. */
class ContextOnHostTest {
  private static final int TASKS = 100;
  private static final int ITEMS = 500;
  private static final int ROUNDS = 10;

  private static final ModuleSource AXPY =
      ModuleSource.java(
          "axpy",
          Map.of(
              "axpy",
              (arguments, begin, end) -> {
                double a = arguments.f64(0);
                MemorySegment x = arguments.buffer(1);
                MemorySegment y = arguments.buffer(2);
                for (long i = begin; i < end; i++) {
                  double sum =
                      a * x.getAtIndex(ValueLayout.JAVA_DOUBLE, i)
                          + y.getAtIndex(ValueLayout.JAVA_DOUBLE, i);
                  y.setAtIndex(ValueLayout.JAVA_DOUBLE, i, sum);
                }
              },
              "poison",
              (arguments, begin, end) -> {
                throw new IllegalStateException("poisoned");
              }));

  /** Device memory with no ledger: used on one stream, or ordered by the test. */
  private record Raw(long address, long bytes) implements Operand {
    static Raw allocate(DeviceStream stream, long bytes) {
      long[] address = new long[1];
      Driver driver = stream.context().driver();
      stream.enqueue(
          DriverCall.ALLOC_ASYNC,
          "allocate",
          (handle, addresses) -> address[0] = driver.allocAsync(handle, bytes));
      return new Raw(address[0], bytes);
    }

    void free(DeviceStream stream) {
      Driver driver = stream.context().driver();
      stream.enqueue(
          DriverCall.FREE_ASYNC, "free", (handle, addresses) -> driver.freeAsync(handle, address));
    }

    @Override
    public long acquire(DeviceStream stream, Access access) {
      return address;
    }

    @Override
    public void recorded(DeviceStream stream, long sequence, Access access) {}

    @Override
    public void abandoned(DeviceStream stream, Access access) {}
  }

  static Stream<Arguments> settings() {
    return Stream.of(WaitMode.values())
        .flatMap(mode -> Stream.of("true", "false").map(notify -> Arguments.of(mode, notify)));
  }

  @ParameterizedTest(name = "{0}, notify {1}")
  @MethodSource("settings")
  void tasksComputeTheSameInEveryMode(WaitMode mode, String notify) throws Exception {
    try (TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT);
        Driver driver =
            new HostDriverProvider()
                .open(Map.of("workers", "2", "strict", "true", "notify", notify));
        DeviceContext context =
            DeviceContext.open(tasks, driver, 0, DeviceConfig.defaults().withUnfinishedMax(32))) {
      Kernel axpy = context.load(AXPY).kernel("axpy", F64, in(F64), inOut(F64));
      try (TaskScope<Double> scope = tasks.scope()) {
        for (int i = 0; i < TASKS; i++) {
          scope.fork(ForkOptions.DEFAULT.waitMode(mode), () -> compute(context, axpy));
        }
        double expected = ITEMS * (1.0 + 0.5 * ROUNDS);
        assertThat(scope.join()).isEqualTo(Collections.nCopies(TASKS, expected));
      }
      assertThat(context.stats().launches()).isEqualTo((long) TASKS * ROUNDS);
      assertThat(context.stats().leaks()).isZero();
    }
  }

  private static double compute(DeviceContext context, Kernel axpy) {
    DeviceStream stream = context.stream();
    long bytes = ITEMS * 8L;
    Raw x = Raw.allocate(stream, bytes);
    Raw y = Raw.allocate(stream, bytes);
    try (HostBlock staging = context.hostBlocks().take(bytes)) {
      MemorySegment host = staging.segment();
      for (int i = 0; i < ITEMS; i++) {
        host.setAtIndex(ValueLayout.JAVA_DOUBLE, i, 1.0);
      }
      stream.copyToDevice(x, 0, host);
      stream.copyToDevice(y, 0, host);
      for (int i = 0; i < ROUNDS; i++) {
        axpy.launch(Grid.of(ITEMS), 0.5, x, y);
      }
      stream.reached().await(); // the block is overwritten next
      stream.copyToHost(host, y, 0);
      x.free(stream);
      y.free(stream);
      stream.reached().await();
      double sum = 0;
      for (int i = 0; i < ITEMS; i++) {
        sum += host.getAtIndex(ValueLayout.JAVA_DOUBLE, i);
      }
      return sum;
    }
  }

  @Test
  void orderFollowsForksAndJoinsAcrossStreams() throws Exception {
    try (TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT);
        Driver driver = new HostDriverProvider().open(Map.of("workers", "2", "strict", "true"));
        DeviceContext context = DeviceContext.open(tasks, driver, 0, DeviceConfig.defaults())) {
      Kernel axpy = context.load(AXPY).kernel("axpy", F64, in(F64), inOut(F64));
      DeviceStream mine = context.stream();
      Raw x = Raw.allocate(mine, ITEMS * 8L);
      Raw y = Raw.allocate(mine, ITEMS * 8L);
      try (HostBlock ones = context.hostBlocks().take(ITEMS * 8L);
          HostBlock result = context.hostBlocks().take(ITEMS * 8L)) {
        for (int i = 0; i < ITEMS; i++) {
          ones.segment().setAtIndex(ValueLayout.JAVA_DOUBLE, i, 1.0);
        }
        mine.copyToDevice(x, 0, ones.segment());
        mine.fill(y, 0, ITEMS * 8L, (byte) 0);
        for (int i = 0; i < 200; i++) {
          // y += x, by a new task each time: the chain holds only if every fork and join orders
          try (TaskScope<Void> scope = tasks.scope()) {
            scope.fork(
                () -> {
                  axpy.launch(Grid.of(ITEMS), 1.0, x, y);
                  return null;
                });
            scope.join();
          }
        }
        mine.copyToHost(result.segment(), y, 0);
        mine.reached().await();
        for (int i = 0; i < ITEMS; i++) {
          assertThat(result.segment().getAtIndex(ValueLayout.JAVA_DOUBLE, i)).isEqualTo(200.0);
        }
        assertThat(context.stats().edges()).isPositive();
      }
    }
  }

  @ParameterizedTest(name = "{0}, notify {1}")
  @MethodSource("settings")
  void aFaultyKernelIsNamedToWhoeverWaits(WaitMode mode, String notify) throws Exception {
    try (TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT);
        Driver driver = new HostDriverProvider().open(Map.of("workers", "2", "notify", notify));
        DeviceContext context = DeviceContext.open(tasks, driver, 0, DeviceConfig.defaults())) {
      Kernel poison = context.load(AXPY).kernel("poison");
      try (TaskScope<Void> scope = tasks.scope()) {
        scope.fork(
            ForkOptions.named("careless").waitMode(mode),
            () -> {
              poison.launch(Grid.of(10));
              assertThatThrownBy(() -> context.stream().reached().await())
                  .isInstanceOf(DeviceLostException.class)
                  .hasMessageContaining("poison");
              return null;
            });
        scope.join();
      }
      List<String> sites = java.util.Objects.requireNonNull(context.fault()).launchSites();
      assertThat(sites).hasSize(1);
      assertThat(sites.getFirst()).contains("launch poison (10 items)").contains("careless");
    }
  }

  @Test
  void whoIsCalledBackIsOnADeviceManagersThread() throws Exception {
    CountDownLatch hold = new CountDownLatch(1);
    ModuleSource source =
        ModuleSource.java("held", Map.of("held", (arguments, begin, end) -> await(hold)));
    try (TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT);
        Driver driver = new HostDriverProvider().open(Map.of("workers", "1"));
        DeviceContext context = DeviceContext.open(tasks, driver, 0, DeviceConfig.defaults())) {
      DeviceStream stream = context.stream();
      context.load(source).kernel("held").launch(stream, Grid.of(1));
      Completion<Void> reached = stream.reached();
      AtomicReference<Role> role = new AtomicReference<>();
      CountDownLatch called = new CountDownLatch(1);
      reached.onDone(
          done -> {
            role.set(Role.current());
            called.countDown();
          });
      hold.countDown();
      assertThat(called.await(20, TimeUnit.SECONDS)).isTrue();
      assertThat(role).hasValue(Role.DEVICE_MANAGER);
    }
  }

  private static void await(CountDownLatch latch) {
    try {
      latch.await();
    } catch (InterruptedException e) {
      throw new IllegalStateException("a device is not interrupted", e);
    }
  }
}
