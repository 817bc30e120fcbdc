package io.fairlead.memory;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.OutOfDeviceMemoryException;
import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.DriverException;
import io.fairlead.host.HostFaults;
import io.fairlead.host.HostStepper;
import io.fairlead.task.Completion;
import io.fairlead.task.Fork;
import io.fairlead.task.TaskScope;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** How an arena is cut, and what becomes of the pieces. */
@Timeout(60)
class ArenaPoolTest {
  private static final long LIMIT = 1 << 20;

  private TestDevice world;

  @AfterEach
  void close() {
    if (world != null) {
      ((ArenaPool) world.device.pool()).check();
      world.close();
    }
  }

  private static MemoryConfig config() {
    return MemoryConfig.defaults().withPool(MemoryPool.ARENA).withLimit(LIMIT);
  }

  private Device open(MemoryConfig config) {
    world = TestDevice.open(config);
    return world.device;
  }

  private static long address(DeviceBuffer buffer) {
    return buffer.storage().address;
  }

  @Test
  void theDriverIsAskedOnce() {
    Device device = open(config());
    assertThat(device.memory().cached()).as("not before it is needed").isZero();
    try (DeviceBuffer first = device.allocate(1000)) {
      first.fill((byte) 1);
      assertThat(device.memory().cached()).isEqualTo(LIMIT - 1024);
    }
    HostFaults.of(world.driver).failCall(DriverCall.ALLOC_ASYNC, 1, DriverException.OUT_OF_MEMORY);
    for (long bytes = 1; bytes <= LIMIT; bytes *= 3) {
      device.allocate(bytes).close();
    }
    assertThat(device.memory().reused()).isEqualTo(device.memory().allocations() - 1);
  }

  @Test
  void itsOwnStreamHasItsBytesAgainInOtherSizes() {
    world = TestDevice.stepped(config());
    Device device = world.device;
    DeviceBuffer whole = device.allocate(64 << 10);
    long address = address(whole);
    whole.fill((byte) 1);
    whole.close();
    assertThat(device.memory().pendingFree()).isEqualTo(64 << 10);
    DeviceBuffer same = device.allocate(64 << 10);
    assertThat(address(same)).isEqualTo(address);
    same.fill((byte) 2);
    same.close();
    DeviceBuffer almost = device.allocate((64 << 10) - 256); // what is cut off goes on resting
    assertThat(address(almost)).isEqualTo(address);
    assertThat(device.memory().pendingFree()).isEqualTo(256);
    almost.close();
  }

  @Test
  void anotherStreamGetsWhatIsReadyInstead() {
    world = TestDevice.stepped(config());
    Device device = world.device;
    DeviceBuffer used = device.allocate(4096);
    world.newStream().fill(used, 0, 4096, (byte) 1);
    used.close();
    DeviceBuffer other = device.allocate(4096);
    assertThat(address(other)).isNotEqualTo(address(used));
    other.close();
  }

  @Test
  void smallOnesLieTogetherAndLargeOnesAtTheOtherEnd() {
    Device device = open(config());
    DeviceBuffer small = device.allocate(256);
    DeviceBuffer large = device.allocate(128 << 10);
    DeviceBuffer next = device.allocate(256);
    assertThat(address(next)).isEqualTo(address(small) + 256);
    assertThat(address(large)).isEqualTo(address(small) + LIMIT - (128 << 10));
    small.close();
    large.close();
    next.close();
  }

  @Test
  void whateverWasCutBecomesOnePieceAgain() {
    for (int seed = 1; seed <= 10; seed++) {
      Device device = open(config());
      Random random = new Random(seed);
      List<DeviceBuffer> live = new ArrayList<>();
      for (int step = 0; step < 500; step++) {
        if (live.size() < 40 && random.nextInt(3) > 0) {
          live.add(device.allocate(1 + random.nextInt(20_000)));
        } else if (!live.isEmpty()) {
          live.remove(random.nextInt(live.size())).close();
        }
      }
      ((ArenaPool) device.pool()).check();
      live.forEach(DeviceBuffer::close);
      world.awaitNothingInUse();
      try (DeviceBuffer all = device.allocate(LIMIT)) {
        assertThat(all.bytes()).as("seed %d", seed).isEqualTo(LIMIT);
      }
      close();
    }
    world = null;
  }

  @Test
  void whoFindsNoPieceWaitsForOthersToCloseTheirs() {
    Device device = open(config().withWait(Duration.ofSeconds(50)));
    List<DeviceBuffer> buffers = new ArrayList<>();
    for (int i = 0; i < 8; i++) {
      buffers.add(device.allocate(LIMIT / 8));
    }
    for (int i = 0; i < 8; i += 2) {
      buffers.get(i).close(); // half of it is free, and no two pieces are neighbours
    }
    try (TaskScope<Long> scope = world.tasks.scope()) {
      Fork<Long> waits =
          scope.fork(
              () -> {
                try (DeviceBuffer large = device.allocate(LIMIT / 4)) {
                  return address(large);
                }
              });
      while (device.memory().inUse() < LIMIT * 3 / 4) {
        Thread.onSpinWait(); // it has its charge
      }
      assertThat(waits.state()).isEqualTo(Fork.State.RUNNING);
      buffers.get(3).close();
      assertThat(scope.join()).hasSize(1);
      assertThat(waits.state()).isNotEqualTo(Fork.State.RUNNING);
    }
    buffers.forEach(DeviceBuffer::close);
  }

  @Test
  void whoHoldsWhatLiesBetweenIsToldAtOnce() {
    Device device = open(config().withWait(Duration.ofHours(1)).withSpill(SpillConfig.OFF));
    world.tasks.enter(
        "holder",
        0,
        () -> {
          List<DeviceBuffer> buffers = new ArrayList<>();
          for (int i = 0; i < 8; i++) {
            buffers.add(device.allocate(LIMIT / 8));
          }
          for (int i = 0; i < 8; i += 2) {
            buffers.get(i).close();
          }
          device.context().reached().await();
          assertThatThrownBy(() -> device.allocate(LIMIT / 4))
              .isInstanceOf(OutOfDeviceMemoryException.class)
              .hasStackTraceContaining(
                  "no piece of the arena has 256.0 KiB (262144 bytes): 512.0 KiB (524288 bytes)"
                      + " are free, the largest piece has 128.0 KiB (131072 bytes)")
              .hasStackTraceContaining("fairlead.memory.pool=fairlead");
          assertThat(device.memory().inUse()).isEqualTo(LIMIT / 2);
          buffers.forEach(DeviceBuffer::close);
          return null;
        });
  }

  /** Whoever makes room may need the arena for it, or who has that may need him. */
  @Test
  void whoMakesRoomIsToldOfWhatIsMissingWithoutTheLock() {
    Device device = open(config().withSpill(SpillConfig.OFF));
    ArenaPool arena = (ArenaPool) device.pool();
    List<Boolean> locked = new ArrayList<>();
    device.budget().onMissing(() -> locked.add(arena.isLockedHere()));
    Completion<Reservation> waits =
        world.tasks.enter(
            "holder",
            0,
            () -> {
              try (DeviceBuffer half = device.allocate(LIMIT / 2)) {
                Completion<Reservation> others = requestByAnother(device, LIMIT);
                device.allocate(1024).close(); // goes ahead
                assertThat(half.bytes()).isPositive();
                return others;
              }
            });
    device.context().reached().await();
    device.memory();
    waits.await().close();
    assertThat(locked).isNotEmpty().containsOnly(false);
  }

  private Completion<Reservation> requestByAnother(Device device, long bytes) {
    return CompletableFuture.supplyAsync(() -> device.requestReservation(bytes)).join();
  }

  @Test
  void aDriverWithLessThanTheLimitGivesWhatItHas() {
    Device device = open(config());
    HostFaults faults = HostFaults.of(world.driver);
    faults.failCall(DriverCall.ALLOC_ASYNC, 1, DriverException.OUT_OF_MEMORY);
    try (DeviceBuffer buffer = device.allocate(1024)) {
      buffer.fill((byte) 1);
      assertThat(device.memory().cached()).isEqualTo(LIMIT - LIMIT / 8 - 1024);
    }
    assertThatThrownBy(() -> device.allocate(LIMIT))
        .isInstanceOf(OutOfDeviceMemoryException.class)
        .hasStackTraceContaining("no piece of the arena has 1.0 MiB");
    faults.failCall(DriverCall.ALLOC_ASYNC, 1, DriverException.OUT_OF_MEMORY);
    device.context().reached().await();
    device.trim().await();
    assertThatThrownBy(() -> device.allocate(LIMIT))
        .hasStackTraceContaining("in one piece for the arena; set a smaller limit");
    device.allocate(LIMIT).close();
  }

  @Test
  void itIsReturnedOnlyWhole() {
    Device device = open(config());
    DeviceBuffer held = device.allocate(256);
    device.allocate(4096).close();
    device.context().reached().await();
    device.trim().await();
    assertThat(device.memory().cached()).isEqualTo(LIMIT - 256);
    held.close();
    device.trim().await();
    assertThat(device.memory().cached()).isZero();
    device.allocate(256).close();
    assertThat(device.memory().cached()).isPositive();
  }

  @Test
  void whoAsksWhileItIsReturnedGetsTheNextOne() {
    world = TestDevice.stepped(config().withWait(Duration.ofSeconds(50)));
    HostStepper stepper = world.stepper();
    Device device = world.device;
    world.filled(stepper, 4096, 1).close();
    Completion<Void> trimmed = device.trim();
    world.awaitRetired();
    assertThat(trimmed.isDone()).as("the device has not reached it").isFalse();
    try (TaskScope<Boolean> scope = world.tasks.scope()) {
      Fork<Boolean> asks =
          scope.fork(
              () -> {
                device.allocate(LIMIT).close();
                return true;
              });
      while (asks.state() == Fork.State.RUNNING) {
        device.context().reached();
        stepper.completeAll();
        Thread.onSpinWait();
      }
      assertThat(scope.join()).containsExactly(true);
    }
    trimmed.await();
  }
}
