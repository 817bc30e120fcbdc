package io.fairlead.memory;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.DeviceConfig;
import io.fairlead.device.DeviceException;
import io.fairlead.device.DeviceGraph;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.Kernel;
import io.fairlead.device.ModuleSource;
import io.fairlead.device.OutOfDeviceMemoryException;
import io.fairlead.device.Param;
import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.DriverException;
import io.fairlead.device.spi.Grid;
import io.fairlead.host.HostFaults;
import io.fairlead.host.HostStepper;
import io.fairlead.task.Completion;
import io.fairlead.task.Fork;
import io.fairlead.task.Role;
import io.fairlead.task.ScopeOptions;
import io.fairlead.task.ScopePolicy;
import io.fairlead.task.Task;
import io.fairlead.task.TaskScope;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** Memory comes back, and waits for it end, also where the ordinary way is barred. */
class GivingBackTest {
  private static final long LIMIT = 1 << 20;
  private static final int UNFINISHED_MAX = 4;
  private static final ScopeOptions COLLECT = ScopeOptions.of(ScopePolicy.COLLECT);
  private static final MemoryConfig PATIENT =
      MemoryConfig.defaults()
          .withLimit(LIMIT)
          .withWait(Duration.ofHours(1))
          .withSpill(SpillConfig.OFF);

  private TestDevice world;

  @AfterEach
  void close() {
    if (world != null) {
      world.close();
    }
  }

  /** A stepped device whose streams are full after few operations. */
  private HostStepper narrow() {
    world = TestDevice.stepped(PATIENT, DeviceConfig.defaults().withUnfinishedMax(UNFINISHED_MAX));
    return world.stepper();
  }

  @Test
  void aFreeThatTheDriverRefusesIsTriedAgain() {
    world = TestDevice.open(MemoryConfig.defaults().withPool(MemoryPool.DRIVER));
    DeviceBuffer buffer = world.device.allocate(1024);
    HostFaults.of(world.driver).failCall(DriverCall.FREE_ASYNC, 1, DriverException.NOT_SUPPORTED);
    assertThatThrownBy(buffer::close)
        .isInstanceOf(DeviceException.class)
        .hasMessageContaining("injected");
    while (world.device.memory().inUse() > 0) { // ends by the test's timeout if it never does
      world.device.context().reached().await();
      Thread.onSpinWait();
    }
    assertThat(world.device.memory().pendingFree()).isZero();
  }

  @Test
  void aCloseThatIsInterruptedWaitsForItsGraphsAllTheSame() throws Exception {
    CountDownLatch reported = new CountDownLatch(1);
    CountDownLatch mayEnd = new CountDownLatch(1);
    world = TestDevice.open(PATIENT.withLeakListener(_ -> reported.countDown()));
    ModuleSource source = ModuleSource.java("m", Map.of("slow", (_, _, _) -> await(mayEnd)));
    Kernel slow = world.device.load(source).kernel("slow", Param.inOut(Param.I64));
    DeviceBuffer buffer = world.device.allocate(8); // stays open, and is reported
    DeviceStream stream = world.newStream();
    DeviceGraph graph = stream.capture("slow", () -> slow.launch(stream, Grid.of(1), buffer));
    graph.launch(stream);
    graph.close();
    Thread closer = Thread.ofPlatform().start(world.device::close);
    awaitWaiting(closer, reported);
    closer.interrupt();
    awaitWaiting(closer, reported);
    assertThat(reported.getCount()).as("the graph has not ended").isEqualTo(1);
    mayEnd.countDown();
    closer.join();
    assertThat(reported.getCount()).isZero();
  }

  private static void await(CountDownLatch latch) {
    try {
      latch.await();
    } catch (InterruptedException e) {
      throw new AssertionError(e); // nobody interrupts it
    }
  }

  /** Waits, and knows of no interrupt; or has gone on. */
  private static void awaitWaiting(Thread thread, CountDownLatch wentOn) {
    while ((thread.isInterrupted() || thread.getState() != Thread.State.TIMED_WAITING)
        && wentOn.getCount() > 0) {
      Thread.onSpinWait();
    }
  }

  /** Ends by the test's timeout if it never comes to that. */
  private void awaitInUse(HostStepper stepper, long bytes) {
    while (world.device.memory().inUse() != bytes) {
      stepper.completeAll();
      world.device.context().reached();
      Thread.onSpinWait();
    }
  }

  @Test
  void aCancelledTaskFreesOnAFullStream() throws Exception {
    HostStepper stepper = narrow();
    CountDownLatch full = new CountDownLatch(1);
    try (TaskScope<Boolean> scope = world.tasks.scope(COLLECT)) {
      Fork<Boolean> fork =
          scope.fork(
              () -> {
                DeviceBuffer buffer = world.device.allocate(1024);
                for (int i = 1; i < UNFINISHED_MAX; i++) {
                  buffer.fill((byte) i);
                }
                full.countDown();
                while (!Task.current().isCancelled()) {
                  Thread.onSpinWait();
                }
                buffer.close();
                return true;
              });
      full.await();
      fork.task().cancel(null);
      while (fork.state() == Fork.State.RUNNING) {
        stepper.completeAll(); // it may wait for room, but not give up
        Thread.onSpinWait();
      }
      scope.join();
      assertThat(fork.failure()).isNull();
    }
    awaitInUse(stepper, 0);
    assertThat(world.device.memory().pendingFree()).isZero();
  }

  @Test
  void aCancelledTaskFreesWhatAnotherStreamUsedThatIsClosed() throws Exception {
    HostStepper stepper = narrow();
    DeviceBuffer buffer = world.filled(stepper, 1024, 1);
    DeviceStream stream = world.newStream();
    stream.fill(buffer, 0, 1024, (byte) 2);
    stream.close();
    CountDownLatch busy = new CountDownLatch(1);
    world.device.context().owner().trySubmit(() -> awaitDown(busy)); // makes no streams meanwhile
    CountDownLatch begun = new CountDownLatch(1);
    try (TaskScope<Boolean> scope = world.tasks.scope(COLLECT)) {
      Fork<Boolean> fork =
          scope.fork(
              () -> {
                begun.countDown();
                while (!Task.current().isCancelled()) {
                  Thread.onSpinWait();
                }
                buffer.close();
                return true;
              });
      begun.await();
      fork.task().cancel(null);
      scope.join();
      assertThat(fork.failure()).isNull();
    }
    busy.countDown();
    awaitInUse(stepper, 0);
  }

  private static void awaitDown(CountDownLatch latch) {
    try {
      latch.await();
    } catch (InterruptedException e) {
      throw new IllegalStateException("nobody interrupts an owner", e);
    }
  }

  @Test
  void aCallbackOfTheDeviceFreesOnAFullStream() throws Exception {
    HostStepper stepper = narrow();
    DeviceBuffer buffer = world.filled(stepper, 1024, 1);
    DeviceStream other = world.newStream();
    DeviceBuffer elsewhere = world.filled(stepper, 256, 1);
    other.fill(elsewhere, 0, 8, (byte) 2);
    DeviceStream full = world.newStream();
    for (int i = 0; i < UNFINISHED_MAX; i++) {
      full.fill(buffer, 0, 1024, (byte) i);
    }
    Completion<Void> filled = other.reached();
    filled.onDone(done -> buffer.close());
    Thread device =
        Role.DEVICE_MANAGER.newThread("steps", () -> stepper.completeAll(other.handle()));
    device.start();
    device.join(); // a callback that waits there waits for itself
    assertThat(filled.isDone()).isTrue();
    awaitInUse(stepper, elsewhere.bytes());
    elsewhere.close();
  }

  @Test
  void closingTheDeviceEndsWaitsForMemory() {
    world = TestDevice.open(PATIENT);
    Device device = world.device;
    Reservation all = world.tasks.enter("careful", 0, () -> device.reserve(LIMIT));
    try (TaskScope<Boolean> scope = world.tasks.scope(COLLECT)) {
      Fork<Boolean> reserves = scope.fork(() -> device.reserve(8) != null);
      Fork<Boolean> allocates = scope.fork(() -> device.allocate(8) != null);
      Completion<Reservation> asked = device.requestReservation(8);
      while (device.budget().waitingCount() < 3) {
        Thread.onSpinWait();
      }
      device.close();
      scope.join();

      assertThat(reserves.failure()).hasMessageContaining("device 0 was closed");
      assertThat(allocates.failure()).hasMessageContaining("device 0 was closed");
      assertThatThrownBy(asked::await).hasMessageContaining("device 0 was closed");
    }
    all.close();
  }

  @Test
  void aRequestOfWhoHoldsWhatIsMissingEnds() {
    world = TestDevice.open(PATIENT.withGrace(Duration.ofMillis(20)));
    Device device = world.device;
    world.tasks.enter(
        "holder",
        0,
        () -> {
          try (DeviceBuffer held = device.allocate(LIMIT)) {
            held.fill((byte) 1);
            Completion<Reservation> asked = device.requestReservation(8);
            assertThatThrownBy(asked::await)
                .isInstanceOf(OutOfDeviceMemoryException.class)
                .hasMessageContaining("the task itself holds all of it");
          }
          return null;
        });
    assertThat(device.budget().hasWaiting()).isFalse();
  }
}
