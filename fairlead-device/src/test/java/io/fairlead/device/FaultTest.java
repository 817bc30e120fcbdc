package io.fairlead.device;

import static io.fairlead.device.World.work;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.DriverException;
import io.fairlead.device.spi.Grid;
import io.fairlead.fault.Severity;
import io.fairlead.task.Completion;
import io.fairlead.task.Fork;
import io.fairlead.task.ScopeOptions;
import io.fairlead.task.ScopePolicy;
import io.fairlead.task.TaskScope;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.function.Supplier;
import java.util.stream.Stream;
import org.junit.jupiter.api.Named;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Law 6: a failure has one cause, and everybody hears of it. */
class FaultTest {
  private static final int WAITERS = 1000;

  static Stream<Named<Supplier<FakeDriver>>> drivers() {
    return Stream.of(
        Named.of("notified", FakeDriver::stepped), Named.of("polled", FakeDriver::polled));
  }

  @ParameterizedTest
  @MethodSource("drivers")
  void aThousandWaitersOnManyStreamsFailWithOneCause(Supplier<FakeDriver> driver) throws Exception {
    try (World world = new World(driver.get());
        TaskScope<Void> scope =
            world.tasks.scope(ScopeOptions.DEFAULT.policy(ScopePolicy.COLLECT))) {
      CountDownLatch waiting = new CountDownLatch(WAITERS);
      for (int i = 0; i < WAITERS; i++) {
        scope.fork(
            () -> {
              DeviceStream stream = world.context.stream();
              work(stream, "work");
              Completion<Void> reached = stream.reached();
              waiting.countDown();
              reached.await();
              return null;
            });
      }
      waiting.await();
      world.driver.fail("address 0xdead");
      scope.join();
      DeviceException first = world.context.fault();
      assertThat(first).isNotNull();
      assertThat(world.context.isLost()).isTrue();
      for (Fork<Void> fork : scope.forks()) {
        assertThat(fork.failure())
            .isInstanceOf(DeviceLostException.class)
            .hasMessageContaining("address 0xdead")
            .cause()
            .isSameAs(first);
      }
      assertThat(first.launchSites()).isNotEmpty();
    }
  }

  @Test
  void aFaultNamesWhatWasInFlightAndWhoLaunchedIt() throws Exception {
    try (World world = new World(FakeDriver.stepped())) {
      Kernel kernel = world.kernel("poison", Param.F64);
      try (TaskScope<Void> scope = world.tasks.scope()) {
        scope.fork(
            io.fairlead.task.ForkOptions.DEFAULT.name("solver"),
            () -> {
              DeviceStream stream = world.context.stream();
              work(stream, "harmless");
              Mark harmless = stream.mark();
              Completion<Void> reached = stream.reached();
              world.driver.endOne(stream);
              reached.await();
              assertThat(stream.isReached(harmless)).isTrue();
              kernel.launch(Grid.of(4096), 1.0);
              Completion<Void> lost = stream.reached();
              world.driver.fail("launch failed");
              assertThatThrownBy(lost::await)
                  .isInstanceOfSatisfying(
                      DeviceLostException.class,
                      e -> {
                        assertThat(e.severity()).isEqualTo(Severity.CONTEXT);
                        assertThat(e.status()).isEqualTo(DriverException.ILLEGAL_ADDRESS);
                        assertThat(e.statusName()).isEqualTo("ILLEGAL_ADDRESS");
                        assertThat(e.launchSites()).hasSize(1);
                        assertThat(e.launchSites().getFirst())
                            .contains("launch poison (4096 items)")
                            .contains("stream " + stream.id() + " operation 2")
                            .contains("solver");
                      });
              return null;
            });
        scope.join();
      }
    }
  }

  @Test
  void laterCallsSayTheSame() {
    try (World world = new World(FakeDriver.stepped())) {
      Kernel kernel = world.kernel("axpy", Param.F64);
      DeviceStream stream = world.context.stream();
      DeviceStream other = world.context.openStream(0);
      work(stream, "work");
      Mark mark = stream.mark();
      Completion<Void> waited = stream.reached();
      world.driver.fail("boom");
      World.until("the fault is known", waited::isDone);
      DeviceException first = world.context.fault();
      List<org.assertj.core.api.ThrowableAssert.ThrowingCallable> later =
          List.of(
              () -> work(stream, "more"),
              () -> kernel.launch(Grid.of(1), 1.0),
              () -> stream.reached().await(),
              () -> stream.reached(mark).await(),
              () -> other.after(mark),
              () -> world.context.openStream(0),
              () -> world.context.load(ModuleSource.java("m", java.util.Map.of())),
              () -> world.context.hostBlocks().take(100),
              () -> world.context.reached().await(),
              () -> world.context.driverCall(DriverCall.MEMORY_INFO, "ask", () -> null));
      for (var call : later) {
        assertThatThrownBy(call)
            .isInstanceOf(DeviceLostException.class)
            .hasMessageContaining("boom")
            .cause()
            .isSameAs(first);
      }
    }
  }

  @Test
  void workThatEndedBeforeTheFaultStaysEnded() {
    try (World world = new World(FakeDriver.stepped())) {
      DeviceStream stream = world.context.stream();
      work(stream, "good");
      Mark good = stream.mark();
      Completion<Void> reached = stream.reached(good);
      world.driver.endOne(stream);
      reached.await();
      work(stream, "bad");
      Completion<Void> bad = stream.reached();
      world.driver.fail("boom");
      assertThatThrownBy(bad::await).isInstanceOf(DeviceLostException.class);
      stream.reached(good).await();
    }
  }

  @Test
  void aSynchronousFatalRefusalLosesTheContextForAll() {
    try (World world = new World(FakeDriver.polled())) {
      DeviceStream stream = world.context.stream();
      world.driver.fail("found by a launch");
      assertThatThrownBy(() -> work(stream, "work"))
          .isInstanceOf(DeviceLostException.class)
          .hasMessageContaining("work on device 0, stream " + stream.id())
          .hasMessageContaining("found by a launch");
      assertThat(world.context.isLost()).isTrue();
    }
  }

  @Test
  void aRefusalThatIsNotFatalLeavesTheContextSound() {
    try (World world = new World(FakeDriver.strict())) {
      DeviceStream stream = world.context.stream();
      world.driver.refuseNext(DriverCall.LAUNCH, DriverException.INVALID_VALUE, "INVALID_VALUE");
      assertThatThrownBy(() -> work(stream, "work"))
          .isInstanceOfSatisfying(
              DeviceException.class,
              e -> {
                assertThat(e.severity()).isEqualTo(Severity.OPERATION);
                assertThat(e.status()).isEqualTo(DriverException.INVALID_VALUE);
                assertThat(e.operation()).isEqualTo("work");
                assertThat(e.device()).isZero();
                assertThat(e.stream()).isEqualTo(stream.id());
                assertThat(e.launchSites()).isEmpty();
              });
      assertThat(stream.mark().sequence()).isZero();
      work(stream, "more");
      stream.reached().await();
      assertThat(world.context.isLost()).isFalse();
      assertThat(world.context.fault()).isNull();
    }
  }

  @Test
  void outOfMemoryHasItsOwnType() {
    try (World world = new World(FakeDriver.strict())) {
      DeviceStream stream = world.context.stream();
      world.driver.refuseNext(DriverCall.LAUNCH, DriverException.OUT_OF_MEMORY, "OUT_OF_MEMORY");
      assertThatThrownBy(() -> work(stream, "work")).isInstanceOf(OutOfDeviceMemoryException.class);
    }
  }

  @Test
  void aSignalThatIsRefusedFailsThoseWhoWaitForIt() {
    try (World world = new World(FakeDriver.stepped())) {
      DeviceStream stream = world.context.stream();
      work(stream, "work");
      world.driver.refuseNext(DriverCall.SIGNAL, DriverException.INVALID_VALUE, "INVALID_VALUE");
      assertThatThrownBy(() -> stream.reached().await())
          .isInstanceOf(DeviceException.class)
          .hasMessageContaining("signal on device 0");
      Completion<Void> again = stream.reached();
      assertThat(again.isDone()).isFalse();
      world.driver.endOne(stream);
      again.await();
    }
  }

  @Test
  void faultsRacingWithWaitersLeaveNobodyBehind() throws Exception {
    for (int round = 0; round < 50; round++) {
      try (World world = new World(FakeDriver.stepped().quiet());
          DeviceStream stream = world.context.openStream(0)) {
        List<Completion<Void>> all = java.util.Collections.synchronizedList(new ArrayList<>());
        Thread adder =
            Thread.ofPlatform()
                .start(
                    () -> {
                      for (int i = 0; i < 200 && !world.context.isLost(); i++) {
                        try {
                          work(stream, "work");
                          all.add(stream.reached());
                        } catch (DeviceLostException e) {
                          return; // the fault came first
                        }
                      }
                    });
        int before = round * 3;
        World.until("some wait", () -> all.size() >= before || !adder.isAlive());
        world.driver.fail("boom");
        adder.join();
        World.until("all have an outcome", () -> all.stream().allMatch(Completion::isDone));
      }
    }
  }
}
