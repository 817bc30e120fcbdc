package io.fairlead.memory;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.DeviceContext;
import io.fairlead.device.DeviceException;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.OutOfDeviceMemoryException;
import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.DriverException;
import io.fairlead.device.spi.MemoryInfo;
import io.fairlead.host.HostFaults;
import io.fairlead.host.HostStepper;
import io.fairlead.task.Completion;
import io.fairlead.task.Fork;
import io.fairlead.task.TaskScope;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.logging.Level;
import java.util.logging.Logger;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.Parameter;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.provider.MethodSource;

/** What every pool keeps, bare and with everything around it that can be put around a pool. */
@ParameterizedClass
@MethodSource("kinds")
@Timeout(60)
class PoolContractTest {
  private static final int BYTES = 4096;

  /** So that what is logged of thousands of requests is made, and not shown. */
  private static final Logger LOG = Logger.getLogger(Pool.class.getName());

  record Kind(MemoryPool pool, PoolWrapping wrapping) {
    MemoryConfig config() {
      return MemoryConfig.defaults().withPool(pool).withWrapping(wrapping);
    }
  }

  static Stream<Kind> kinds() {
    PoolWrapping all = new PoolWrapping(MemoryFailures.nth(Long.MAX_VALUE), PoolLog.ALL);
    return Stream.of(MemoryPool.values())
        .flatMap(pool -> Stream.of(new Kind(pool, PoolWrapping.NONE), new Kind(pool, all)));
  }

  @Parameter Kind kind;

  private TestDevice world;

  @AfterEach
  void close() {
    LOG.setLevel(null);
    if (world != null) {
      check();
      world.close();
    }
  }

  private void check() {
    if (world.device.pool() instanceof ArenaPool arena) {
      arena.check();
    }
  }

  private Device open(MemoryConfig config) {
    LOG.setLevel(Level.WARNING);
    world = TestDevice.open(config);
    return world.device;
  }

  private HostStepper stepped(MemoryConfig config) {
    LOG.setLevel(Level.WARNING);
    world = TestDevice.stepped(config.withWait(Duration.ZERO)); // nobody steps meanwhile
    return world.stepper();
  }

  private long driverUses() {
    DeviceContext context = world.device.context();
    MemoryInfo info =
        context.driverCall(
            DriverCall.MEMORY_INFO,
            "memory info",
            () -> world.driver.memoryInfo(context.nativeContext()));
    return info.totalBytes() - info.freeBytes();
  }

  /** The later stream goes as far as it can before the others begin. */
  private void adversarially(HostStepper stepper, DeviceStream hasty) {
    Completion<Void> all = world.device.context().reached();
    while (!all.isDone()) {
      stepper.completeAll(hasty.handle());
      List<Long> others = stepper.ready();
      if (!others.isEmpty()) {
        stepper.complete(others.getFirst());
      }
    }
  }

  private static MemorySegment host() {
    return Arena.ofAuto().allocate(BYTES);
  }

  private static void assertAll(MemorySegment segment, int value) {
    assertThat(segment.toArray(ValueLayout.JAVA_BYTE)).containsOnly(value);
  }

  // --- order --------------------------------------------------------------------------------

  @Test
  void h3h4TheNextOwnerComesAfterEveryUseOfTheLast() {
    for (long limit : new long[] {8 * BYTES, BYTES}) {
      HostStepper stepper = stepped(kind.config().withLimit(limit).withCachedBytesMax(limit));
      DeviceBuffer buffer = world.filled(stepper, BYTES, 7);
      MemorySegment[] read = {host(), host()};
      for (MemorySegment each : read) {
        world.newStream().copyToHost(each, buffer, 0);
      }
      buffer.close();
      DeviceStream hasty = world.newStream();
      List<DeviceBuffer> next = new ArrayList<>();
      for (long bytes = 0; bytes < limit; bytes += BYTES) {
        DeviceBuffer got = allocateIfPossible(world.device, BYTES);
        if (got != null) {
          hasty.fill(got, 0, BYTES, (byte) 9);
          next.add(got);
        }
      }
      adversarially(stepper, hasty);
      for (MemorySegment each : read) {
        assertAll(each, 7);
      }
      next.forEach(DeviceBuffer::close);
      close();
      world = null;
    }
  }

  private static DeviceBuffer allocateIfPossible(Device device, long bytes) {
    try {
      return device.allocate(bytes);
    } catch (OutOfDeviceMemoryException full) {
      return null; // some pools would have to wait
    }
  }

  @Test
  void h5AnotherStreamUsesMemoryOnlyOnceItIsThere() {
    HostStepper stepper = stepped(kind.config());
    DeviceBuffer buffer = world.device.allocate(BYTES);
    DeviceStream hasty = world.newStream();
    MemorySegment read = host();
    hasty.fill(buffer, 0, BYTES, (byte) 7);
    hasty.copyToHost(read, buffer, 0);
    adversarially(stepper, hasty); // the host device faults where there is no memory yet

    assertAll(read, 7);
    buffer.close();
  }

  @Test
  void h6TheCopyOutIsAReader() {
    HostStepper stepper = stepped(kind.config().withLimit(2 * BYTES));
    DeviceBuffer source = world.filled(stepper, BYTES, 7);
    DeviceBuffer copy = world.device.allocate(BYTES);
    DeviceStream copier = world.newStream();
    copier.copyOnDevice(copy, 0, source, 0, BYTES);
    source.close();
    DeviceStream hasty = world.newStream();
    DeviceBuffer next = allocateIfPossible(world.device, BYTES);
    if (next != null) {
      hasty.fill(next, 0, BYTES, (byte) 9);
      next.close();
    }
    MemorySegment read = host();
    copier.copyToHost(read, copy, 0);
    adversarially(stepper, hasty);

    assertAll(read, 7);
    copy.close();
  }

  @Test
  void h11PartsAndWholesHaveThePastOfTheirBytes() {
    HostStepper stepper = stepped(kind.config().withLimit(2 * BYTES).withCachedBytesMax(2 * BYTES));
    DeviceBuffer whole = world.filled(stepper, 2 * BYTES, 7);
    MemorySegment low = host();
    MemorySegment high = host();
    world.newStream().copyToHost(low, whole, 0);
    world.newStream().copyToHost(high, whole, BYTES);
    whole.close();
    DeviceStream hasty = world.newStream();
    List<DeviceBuffer> parts = new ArrayList<>();
    for (int i = 0; i < 2; i++) {
      DeviceBuffer part = allocateIfPossible(world.device, BYTES);
      if (part != null) {
        hasty.fill(part, 0, BYTES, (byte) 9);
        parts.add(part);
      }
    }
    adversarially(stepper, hasty);
    assertAll(low, 7);
    assertAll(high, 7);

    trim(stepper); // what lies there in other sizes
    while (parts.size() < 2) {
      parts.add(world.filled(stepper, BYTES, 9));
    }
    for (int i = 0; i < 2; i++) {
      world.newStream().copyToHost(i == 0 ? low : high, parts.get(i), 0);
      parts.get(i).close();
    }
    DeviceStream hastier = world.newStream();
    DeviceBuffer again = allocateIfPossible(world.device, 2 * BYTES);
    if (again != null) {
      hastier.fill(again, 0, 2 * BYTES, (byte) 3);
      again.close();
    }
    adversarially(stepper, hastier);
    assertAll(low, 9);
    assertAll(high, 9);
  }

  @Test
  void h12NothingGoesToTheDriverBeforeEveryUseHasEnded() {
    HostStepper stepper = stepped(kind.config());
    DeviceBuffer buffer = world.filled(stepper, BYTES, 7);
    MemorySegment read = host();
    DeviceStream slow = world.newStream();
    slow.copyToHost(read, buffer, 0);
    buffer.close();
    assertThat(world.device.memory().pendingFree()).isEqualTo(BYTES);
    Completion<Void> trimmed = world.device.trim();
    world.awaitRetired(); // behind the trim
    while (stepper.ready().stream().anyMatch(each -> each != slow.handle())) {
      stepper.ready().stream().filter(each -> each != slow.handle()).forEach(stepper::complete);
    }
    assertThat(stepper.pending(slow.handle())).isNotEmpty();
    stepper.completeAll();
    assertAll(read, 7);
    Completion<Void> all = world.device.context().reached();
    stepper.completeAll();
    assertThat(all.isDone()).isTrue();
    assertThat(world.device.memory().inUse()).isZero();
    trimmed.await();

    trim(stepper);
    assertThat(driverUses()).isZero();
    assertThat(world.device.memory().cached()).isZero();
  }

  private void trim(HostStepper stepper) {
    Completion<Void> trimmed = world.device.trim();
    world.awaitRetired();
    Completion<Void> gone = world.device.context().reached();
    stepper.completeAll();
    assertThat(gone.isDone()).isTrue();
    trimmed.await();
  }

  // --- what counts --------------------------------------------------------------------------

  @Test
  void theDriverNeverGivesMoreThanTheLimit() {
    long limit = 1 << 20;
    Device device = open(kind.config().withLimit(limit).withCachedBytesMax(limit));
    for (int round = 0; round < 10; round++) {
      for (int parts : new int[] {4, 3, 2, 1, 5}) {
        List<DeviceBuffer> buffers = new ArrayList<>();
        for (int i = 0; i < parts; i++) {
          DeviceBuffer buffer = device.allocate(limit / parts & -Sizes.GRANULE);
          buffer.fill((byte) i);
          buffers.add(buffer);
          assertThat(driverUses()).isLessThanOrEqualTo(limit);
        }
        check();
        buffers.forEach(DeviceBuffer::close);
        if (kind.config().pool() == MemoryPool.ARENA) {
          // it moves nothing: of pieces that are seen to end one by one it may take one half so
          // that no other half lies side by side
          world.awaitNothingInUse();
        }
      }
    }
    world.awaitNothingInUse();
    assertThat(device.memory().cached()).isEqualTo(driverUses());
  }

  @Test
  void smallOnesLeaveRoomForOneAsLargeAsTheLimit() {
    long limit = 1 << 20;
    Device device = open(kind.config().withLimit(limit));
    List<DeviceBuffer> buffers = new ArrayList<>();
    for (int i = 0; i < 100; i++) {
      DeviceBuffer buffer = device.allocate(1 + 97L * i);
      buffer.fill((byte) i);
      buffers.add(buffer);
    }
    for (int i = 0; i < 100; i++) {
      buffers.get(i * 37 % 100).close();
    }
    try (DeviceBuffer all = device.allocate(limit)) {
      all.fill((byte) 1);
      assertThat(device.memory().inUse()).isEqualTo(limit);
    }
  }

  @Test
  void aReservationIsKeptToTheByte() {
    long limit = 1 << 20;
    Device device = open(kind.config().withLimit(limit));
    world.repeatReserved(
        limit,
        10,
        (reservation, round) -> {
          try (DeviceBuffer one = device.allocate(limit / 4);
              DeviceBuffer other = device.allocate(limit - limit / 4)) {
            assertThat(reservation.free()).isZero();
            one.fill((byte) round);
            other.fill((byte) round);
          }
        });
  }

  @Test
  void aTaskWaitsForWhatOthersClose() {
    long limit = 1 << 20;
    Device device = open(kind.config().withLimit(limit));
    try (TaskScope<Boolean> scope = world.tasks.scope()) {
      List<Fork<Boolean>> forks = new ArrayList<>();
      for (int t = 0; t < 8; t++) {
        byte value = (byte) t;
        forks.add(scope.fork(() -> usesManyBuffers(device, value)));
      }
      assertThat(scope.join()).hasSize(forks.size()).containsOnly(true);
    }
    world.awaitNothingInUse();
  }

  private static boolean usesManyBuffers(Device device, byte value) {
    for (int i = 0; i < 20; i++) {
      try (DeviceBuffer buffer = device.allocate((1 << 18) - 1024L * (i + value))) {
        buffer.fill(value);
        assertThat(buffer.slice(100, 1000).toBytes()).containsOnly(value);
      }
    }
    return true;
  }

  @Test
  void aCaptureGetsNoMemory() {
    Device device = open(kind.config());
    device.allocate(BYTES).close();
    device.context().reached().await();
    world.tasks.enter(
        "captures",
        0,
        () -> {
          device
              .capture(
                  "no memory",
                  _ ->
                      assertThatThrownBy(() -> device.allocate(BYTES))
                          .isInstanceOf(IllegalStateException.class)
                          .hasMessageContaining("captured"))
              .close();
          return null;
        });
    assertThat(device.memory().inUse()).isZero();
  }

  // --- refusals and ends --------------------------------------------------------------------

  @Test
  void aRefusalOfTheDriverLeavesNothing() {
    Device device = open(kind.config());
    HostFaults faults = HostFaults.of(world.driver);
    faults.failCall(DriverCall.ALLOC_ASYNC, 1, DriverException.INVALID_VALUE);
    assertThatThrownBy(() -> device.allocate(BYTES))
        .isInstanceOf(DeviceException.class)
        .hasMessageContaining("injected");
    assertThat(device.memory().inUse()).isZero();
    try (DeviceBuffer buffer = device.allocate(BYTES)) {
      buffer.fill((byte) 1);
      assertThat(buffer.toBytes()).containsOnly(1);
    }
    device.context().reached().await();
    faults.failCall(DriverCall.FREE_ASYNC, 1, DriverException.INVALID_VALUE);
    if (device.memory().cached() > 0) {
      assertThatThrownBy(() -> device.trim().await()).isInstanceOf(DeviceException.class);
      assertThat(device.memory().cached()).isEqualTo(driverUses()).isPositive();
      device.allocate(BYTES).close(); // what was not taken back serves as before
      device.context().reached().await();
      device.trim().await();
    }
    assertThat(driverUses()).isZero();
  }

  @Test
  void closingTheDeviceReturnsEverything() {
    Device device = open(kind.config());
    DeviceStream stream = world.newStream();
    for (int i = 1; i < 10; i++) {
      DeviceBuffer buffer = device.allocate((long) i * BYTES);
      stream.fill(buffer, 0, BYTES, (byte) i);
      buffer.close();
    }
    long context = world.driver.retain(0); // as another library in the process does
    device.close();
    long token = world.driver.bind(context);
    MemoryInfo info = world.driver.memoryInfo(context);
    world.driver.restore(context, token);
    assertThat(info.freeBytes()).isEqualTo(info.totalBytes());
    world.driver.release(context);
  }

  @Test
  void whatItKeepsEndsWithTheContext() {
    HostStepper stepper = stepped(kind.config());
    Device device = world.device;
    DeviceBuffer ready = world.filled(stepper, BYTES, 1);
    DeviceBuffer used = device.allocate(2 * BYTES);
    DeviceBuffer kept = device.allocate(3 * BYTES);
    ready.close();
    used.fill((byte) 2);
    used.close();
    HostFaults.of(world.driver).failOperation(DriverCall.FILL, 2, DriverException.ILLEGAL_ADDRESS);
    kept.fill((byte) 3);
    Completion<Void> ended = device.context().reached();
    stepper.completeAll();
    assertThatThrownBy(ended::await).isInstanceOf(DeviceException.class);

    kept.close();
    assertThat(device.memory().inUse()).isZero();
    assertThat(device.memory().cached()).isZero();
    assertThatThrownBy(() -> device.allocate(BYTES)).isInstanceOf(DeviceException.class);
  }

  /** What a lost device has read is used on; see the tests of each pool for more. */
  @Test
  void aPeerThatIsLostKeepsNoMemory() {
    LOG.setLevel(Level.WARNING);
    MemoryConfig config =
        kind.config().withLimit(BYTES).withCachedBytesMax(BYTES).withWait(Duration.ZERO);
    world = TestDevice.open(config, Map.of("stepped", "true", "devices", "2"));
    HostStepper stepper = world.stepper();
    Device losing = world.devices.get(1);
    DeviceBuffer target = losing.allocate(BYTES);
    DeviceStream faulting = losing.context().openStream(0);
    Completion<Void> made = losing.context().reached();
    DeviceBuffer buffer = world.filled(stepper, BYTES, 7);
    assertThat(made.isDone()).isTrue();
    target.copyFrom(buffer);
    buffer.close();
    HostFaults.of(world.driver).failOperation(DriverCall.FILL, 1, DriverException.ILLEGAL_ADDRESS);
    faulting.fill(target, 0, BYTES, (byte) 1);
    stepper.completeAll();
    assertThat(losing.context().isLost()).isTrue();
    Completion<Void> freed = world.device.context().reached();
    stepper.completeAll();
    assertThat(freed.isDone()).isTrue();

    DeviceBuffer next = world.device.allocate(BYTES);
    next.fill((byte) 9);
    Completion<Void> ended = world.device.context().reached();
    stepper.completeAll();
    ended.await();
    next.close();
    faulting.close();
    target.close();
  }
}
