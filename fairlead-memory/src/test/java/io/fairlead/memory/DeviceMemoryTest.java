package io.fairlead.memory;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.DeviceException;
import io.fairlead.device.DeviceLostException;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.OutOfDeviceMemoryException;
import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.DriverException;
import io.fairlead.fault.FairleadException;
import io.fairlead.host.HostFaults;
import io.fairlead.host.HostStepper;
import io.fairlead.task.Completion;
import io.fairlead.task.Fork;
import io.fairlead.task.ForkOptions;
import io.fairlead.task.ScopeOptions;
import io.fairlead.task.ScopePolicy;
import io.fairlead.task.TaskScope;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Limits, waiting, reservations and leaks of one device. */
class DeviceMemoryTest {
  private static final long LIMIT = 1 << 20;
  private static final Duration LONG = Duration.ofHours(1);
  private static final Duration SHORT = Duration.ofMillis(20);
  private static final ScopeOptions COLLECT = ScopeOptions.of(ScopePolicy.COLLECT);

  private TestDevice world;

  private Device open(MemoryConfig config) {
    world = TestDevice.open(config.withLimit(LIMIT).withSpill(SpillConfig.OFF));
    return world.device;
  }

  private static MemoryConfig waiting(Duration wait) {
    return MemoryConfig.defaults().withWait(wait).withSpill(SpillConfig.OFF);
  }

  @AfterEach
  void close() {
    if (world != null) {
      world.close();
    }
  }

  private static void awaitWaiting(Device device) {
    while (!device.budget().hasWaiting()) {
      Thread.onSpinWait(); // ends by the test's timeout if nobody ever waits
    }
  }

  // --- the limit ----------------------------------------------------------------------------

  @Test
  void refusesAtOnceWhatCanNeverFit() {
    Device device = open(waiting(LONG));

    assertThatThrownBy(() -> device.allocate(LIMIT + 1))
        .isInstanceOf(OutOfDeviceMemoryException.class)
        .hasMessageContaining("no room for 1.0 MiB (1048577 bytes) on device 0")
        .hasMessageContaining("it can never fit")
        .hasMessageContaining("limit 1.0 MiB")
        .hasMessageContaining(DeviceMemoryTest.class.getName());
    assertThatThrownBy(() -> device.reserve(LIMIT + 1))
        .isInstanceOf(OutOfDeviceMemoryException.class);
    assertThatThrownBy(() -> device.tryReserve(LIMIT + 1))
        .isInstanceOf(OutOfDeviceMemoryException.class);
    device.allocate(LIMIT).close();
  }

  @Test
  void aLimitAboveTheDeviceIsRefused() {
    assertThatThrownBy(
            () -> TestDevice.open(MemoryConfig.defaults().withLimit(TestDevice.MEMORY + 1)))
        .isInstanceOf(IllegalArgumentException.class)
        .hasMessageContaining("memory limit");
  }

  @Test
  void countsWhatIsThere() {
    Device device = open(waiting(LONG));
    DeviceBuffer first = device.allocate(1000);
    DeviceBuffer second = device.allocate(256);

    assertThat(device.memory())
        .isEqualTo(
            new MemoryStats(
                LIMIT,
                1280,
                0,
                1280,
                2,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                MemoryStats.Moved.NONE,
                MemoryStats.Waits.NONE));
    first.close();
    second.close();
    device.context().reached().await();
    assertThat(device.memory())
        .isEqualTo(
            new MemoryStats(
                LIMIT,
                0,
                0,
                1280,
                2,
                0,
                1280,
                0,
                0,
                0,
                0,
                0,
                MemoryStats.Moved.NONE,
                MemoryStats.Waits.NONE));
  }

  @Test
  void failsWithTheHoldersWhenNothingComesBack() {
    Device device = open(waiting(SHORT));
    DeviceBuffer mine = device.allocate(300_000);
    try (TaskScope<DeviceBuffer> scope = world.tasks.scope(COLLECT)) {
      Fork<DeviceBuffer> holder =
          scope.fork(ForkOptions.named("holder"), () -> device.allocate(500_000));
      scope.join();
      assertThatThrownBy(() -> device.allocate(400_000))
          .isInstanceOf(OutOfDeviceMemoryException.class)
          .hasMessageContaining("nothing came back within 20 ms")
          .hasMessageContaining("in use 781.5 KiB")
          .hasMessageContaining("held: buffer of 488.3 KiB (500000 bytes) (task 'holder'")
          .hasMessageContaining("held: buffer of 293.0 KiB (300000 bytes) (task 'root'")
          .hasMessageContaining("failsWithTheHolders");
      holder.get().close();
    }
    mine.close();
    device.context().reached().await();
    device.allocate(LIMIT).close();
  }

  @Test
  void whoHoldsEverythingIsToldSo() {
    Device device = open(waiting(LONG).withGrace(SHORT));
    world.tasks.enter(
        "alone",
        0,
        () -> {
          try (DeviceBuffer mine = device.allocate(LIMIT)) {
            assertThatThrownBy(() -> device.allocate(1))
                .isInstanceOf(OutOfDeviceMemoryException.class)
                .hasMessageContaining("the task itself holds all of it");
            mine.fill((byte) 1);
          }
          return null;
        });
  }

  // --- waiting ------------------------------------------------------------------------------

  @Test
  void waitsForWhatOthersGiveBack() {
    Device device = open(waiting(LONG));
    DeviceBuffer held = device.allocate(LIMIT);
    try (TaskScope<Long> scope = world.tasks.scope()) {
      scope.fork(
          () -> {
            try (DeviceBuffer buffer = device.allocate(LIMIT)) {
              return buffer.bytes();
            }
          });
      awaitWaiting(device);
      held.close();
      assertThat(scope.join()).containsExactly(LIMIT);
    }
  }

  @Test
  void waitsForAFreeThatIsOnItsWay() {
    world = TestDevice.stepped(waiting(LONG).withLimit(LIMIT));
    HostStepper stepper = world.stepper();
    Device device = world.device;
    DeviceBuffer held = world.filled(stepper, LIMIT, 1);
    try (Arena arena = Arena.ofShared();
        TaskScope<Long> scope = world.tasks.scope()) {
      DeviceStream reader = world.newStream();
      reader.copyToHost(arena.allocate(16), held, 0);
      held.close();
      Fork<Long> waits =
          scope.fork(
              () -> {
                try (DeviceBuffer buffer = device.allocate(LIMIT)) {
                  return buffer.bytes();
                }
              });
      awaitWaiting(device);
      assertThat(device.memory().allocations()).isEqualTo(1);
      while (waits.state() == Fork.State.RUNNING) {
        stepper.completeAll(); // it stands in the queue before it has asked to be told of the free
      }
      assertThat(scope.join()).containsExactly(LIMIT);
      stepper.completeAll();
    }
  }

  @Test
  void cancellingInterruptingAndDeadlinesEndAWaitWithoutATrace() {
    Device device = open(waiting(LONG));
    DeviceBuffer held = device.allocate(LIMIT);
    List<Wish> wishes =
        List.of(
            () -> device.allocate(1).close(),
            () -> device.reserve(1).close(),
            () -> device.allocate(LIMIT).close());
    for (Wish wish : wishes) {
      assertEndsBy(device, wish, COLLECT, fork -> fork.task().cancel(null));
      assertEndsBy(device, wish, COLLECT, fork -> fork.task().interrupt());
      assertEndsBy(device, wish, COLLECT.deadline(SHORT), fork -> {});
    }
    held.close();
    device.allocate(LIMIT).close();
    world.awaitNothingInUse();
    assertThat(device.memory().reserved()).isZero();
  }

  @Test
  @Timeout(60)
  void whoWaitsForMemoryOfALostContextIsToldAtOnce() {
    Device device = open(waiting(LONG));
    DeviceBuffer held = device.allocate(LIMIT);
    try (TaskScope<DeviceBuffer> scope = world.tasks.scope(COLLECT)) {
      Fork<DeviceBuffer> allocates = scope.fork(() -> device.allocate(LIMIT));
      awaitWaiting(device);
      Completion<Reservation> asked = device.requestReservation(LIMIT);
      HostFaults.of(world.driver)
          .failOperation(DriverCall.FILL, 1, DriverException.ILLEGAL_ADDRESS);
      held.fill((byte) 1); // and kept: nobody gives anything back

      scope.join();
      assertThat(allocates.failure()).isInstanceOf(DeviceLostException.class);
      assertThatThrownBy(asked::await).isInstanceOf(DeviceLostException.class);
    }
    assertThat(device.budget().hasWaiting()).isFalse();
    held.close();
  }

  private interface Wish {
    void make();
  }

  private interface End {
    void of(Fork<?> fork);
  }

  private void assertEndsBy(Device device, Wish wish, ScopeOptions options, End end) {
    Throwable failure;
    try (TaskScope<Boolean> scope = world.tasks.scope(options)) {
      Fork<Boolean> fork =
          scope.fork(
              () -> {
                wish.make();
                return true;
              });
      if (options.deadline() == null) {
        awaitWaiting(device);
      }
      end.of(fork);
      try {
        scope.join();
      } catch (FairleadException late) {
        assertThat(options.deadline()).isNotNull();
      }
      failure = fork.failure();
    }
    assertThat(failure)
        .isInstanceOf(FairleadException.class)
        .isNotInstanceOf(OutOfDeviceMemoryException.class);
    assertThat(device.budget().hasWaiting()).isFalse();
  }

  @Test
  void closingInACallbackOfTheDeviceIsAllowed() {
    Device device = open(waiting(LONG));
    DeviceBuffer buffer = device.allocate(LIMIT);
    buffer.fill((byte) 1);
    AtomicReference<Throwable> failure = new AtomicReference<>();
    Completion<Void> filled = device.stream().reached();
    filled.onDone(
        done -> {
          try {
            buffer.close();
          } catch (RuntimeException e) {
            failure.set(e);
          }
        });
    device.allocate(LIMIT).close(); // waits for that close
    assertThat(failure).hasNullValue();
  }

  // --- the driver says no -------------------------------------------------------------------

  @Test
  void aDriverWithoutRoomIsAskedAgainOnceFreesWereReached() {
    Device device = open(waiting(LONG).withPool(MemoryPool.DRIVER));
    device.allocate(1000).close();
    HostFaults.of(world.driver).failCall(DriverCall.ALLOC_ASYNC, 1, DriverException.OUT_OF_MEMORY);

    try (DeviceBuffer buffer = device.allocate(1000)) {
      buffer.fill((byte) 2);
      assertThat(buffer.toBytes()).containsOnly(2);
    }
  }

  @Test
  void aDriverWithoutRoomAndWithoutHopeFailsWithTheReport() {
    Device device = open(waiting(LONG));
    HostFaults.of(world.driver).failCall(DriverCall.ALLOC_ASYNC, 1, DriverException.OUT_OF_MEMORY);

    assertThatThrownBy(() -> device.allocate(1000))
        .isInstanceOf(OutOfDeviceMemoryException.class)
        .hasMessageContaining("the driver has no room although the limit has")
        .hasCauseInstanceOf(OutOfDeviceMemoryException.class);
    assertThat(device.memory().inUse()).isZero();
  }

  @Test
  void aRefusedAllocationTakesNothing() {
    Device device = open(waiting(LONG));
    HostFaults.of(world.driver).failCall(DriverCall.ALLOC_ASYNC, 1, DriverException.INVALID_VALUE);

    assertThatThrownBy(() -> device.allocate(1000)).isInstanceOf(DeviceException.class);
    assertThat(device.memory().inUse()).isZero();
    device.allocate(LIMIT).close();
  }

  // --- reservations -------------------------------------------------------------------------

  @Test
  void childrenDrawOnTheReservationOfTheirParent() {
    Device device = open(waiting(SHORT));
    world.tasks.enter(
        "parent",
        0,
        () -> {
          try (Reservation reservation = device.reserve(LIMIT);
              TaskScope<Long> scope = world.tasks.scope()) {
            for (int i = 0; i < 4; i++) {
              scope.fork(
                  () -> {
                    try (DeviceBuffer buffer = device.allocate(LIMIT / 4)) {
                      return buffer.bytes();
                    }
                  });
            }
            assertThat(scope.join()).hasSize(4);
            assertThat(reservation.bytes()).isEqualTo(LIMIT);
          }
          return null;
        });
    world.awaitNothingInUse();
    assertThat(device.memory().reserved()).isZero();
  }

  @Test
  void othersCannotTakeWhatIsReserved() {
    Device device = open(waiting(SHORT));
    try (TaskScope<Boolean> scope = world.tasks.scope(COLLECT)) {
      Reservation reservation = world.tasks.enter("careful", 0, () -> device.reserve(LIMIT - 1000));
      assertThat(device.memory().reserved()).isEqualTo(Sizes.rounded(LIMIT - 1000));
      assertThat(device.tryReserve(2000)).isEmpty();
      Fork<Boolean> greedy = scope.fork(() -> device.allocate(2000) != null);
      scope.join();
      assertThat(greedy.failure()).isInstanceOf(OutOfDeviceMemoryException.class);

      reservation.close();
      reservation.close();
      assertThat(reservation.free()).isZero();
    }
    assertThat(device.tryReserve(LIMIT)).get().satisfies(Reservation::close);
  }

  @Test
  void waitingReservationsAreServedInOrder() {
    Device device = open(waiting(SHORT));
    Reservation all = device.reserve(LIMIT);
    all.close();
    DeviceBuffer held = device.allocate(LIMIT);
    BlockingQueue<Integer> order = new ArrayBlockingQueue<>(8);
    try (TaskScope<Void> scope = world.tasks.scope()) {
      for (int i = 0; i < 4; i++) {
        int number = i;
        scope.fork(
            () -> {
              try (Reservation mine = device.reserve(LIMIT - 1000 * number)) {
                order.add(number);
                assertThat(mine.bytes()).isPositive();
              }
              return null;
            });
        while (device.budget().waitingCount() != number + 1) {
          Thread.onSpinWait();
        }
      }
      held.close();
      scope.join();
    }
    assertThat(order).containsExactly(0, 1, 2, 3);
  }

  @Test
  void aReservationThatIsAskedForWithoutWaitingCanBeGivenUp() {
    Device device = open(waiting(LONG));
    DeviceBuffer held = device.allocate(LIMIT);
    Completion<Reservation> first = device.requestReservation(LIMIT);
    Completion<Reservation> second = device.requestReservation(LIMIT);
    assertThat(first.isDone()).isFalse();
    assertThat(first.cancel()).isTrue();
    held.close();

    Reservation granted = second.await();
    assertThat(device.memory().reserved()).isEqualTo(LIMIT);
    granted.close();
    assertThat(device.budget().hasWaiting()).isFalse();
    assertThat(device.memory().reserved()).isZero();
  }

  // --- leaks --------------------------------------------------------------------------------

  @Test
  void aDroppedBufferIsFreedInOrderAndReported() throws Exception {
    BlockingQueue<Leak> leaks = new ArrayBlockingQueue<>(8);
    world =
        TestDevice.open(
            waiting(LONG).withLimit(LIMIT).withLeakListener(leaks::addAll),
            Map.of("stepped", "true"));
    HostStepper stepper = world.stepper();
    try (Arena arena = Arena.ofShared()) {
      MemorySegment host = arena.allocate(4096);
      DeviceStream reader = world.newStream();
      dropWhileRead(stepper, reader, host);

      Leak leak = collectUntil(leaks);
      assertThat(leak.bytes()).isEqualTo(4096);
      assertThat(leak.task()).isEqualTo("root");
      assertThat(leak.site()).contains("DeviceMemoryTest.dropWhileRead");
      assertThat(leak.toString()).contains("4.0 KiB").contains("device 0");

      Completion<Void> all = world.device.context().reached();
      stepper.completeAll();
      assertThat(all.isDone()).isTrue();
      assertThat(host.toArray(ValueLayout.JAVA_BYTE))
          .as("freed memory is overwritten: the free came after the read")
          .containsOnly(7);
      assertThat(world.device.memory().inUse()).isZero();
    }
  }

  private void dropWhileRead(HostStepper stepper, DeviceStream reader, MemorySegment host) {
    DeviceBuffer buffer = world.device.allocate(4096);
    buffer.fill((byte) 7);
    stepper.completeAll();
    reader.copyToHost(host, buffer, 0);
    DeviceStream other = world.newStream();
    other.copyToHost(Arena.ofAuto().allocate(4096), buffer, 0);
  }

  private static Leak collectUntil(BlockingQueue<Leak> leaks) throws InterruptedException {
    Leak leak = null;
    while (leak == null) { // ends by the test's timeout if the collector never finds it
      System.gc();
      leak = leaks.poll(50, TimeUnit.MILLISECONDS);
    }
    return leak;
  }

  @Test
  void aSliceKeepsItsBufferFromTheCollector() {
    BlockingQueue<Leak> leaks = new ArrayBlockingQueue<>(8);
    Device device = open(waiting(LONG).withLeakListener(leaks::addAll));
    DeviceBuffer slice = sliceOfADroppedBuffer(device);
    for (int i = 0; i < 5; i++) {
      System.gc();
      slice.fill((byte) i);
      assertThat(slice.toBytes()).containsOnly(i);
    }
    assertThat(leaks).isEmpty();
  }

  private static DeviceBuffer sliceOfADroppedBuffer(Device device) {
    return device.allocate(64).slice(8, 8);
  }

  @Test
  void closingTheDeviceReportsWhatWasLeftOpen() {
    BlockingQueue<List<Leak>> reports = new ArrayBlockingQueue<>(8);
    Device device = open(waiting(LONG).withLeakListener(reports::add));
    DeviceBuffer kept = device.allocate(100);
    device.allocate(200).close();
    DeviceBuffer empty = device.allocate(0);
    device.close();

    assertThat(reports).hasSize(1);
    assertThat(reports.remove()).singleElement().extracting(Leak::bytes).isEqualTo(100L);
    assertThatThrownBy(() -> kept.fill((byte) 0)).isInstanceOf(IllegalStateException.class);
    kept.close();
    empty.close();
    assertThat(reports).isEmpty();
  }
}
