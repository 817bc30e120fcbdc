package io.fairlead.memory;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.Access;
import io.fairlead.device.DeviceContext;
import io.fairlead.device.DeviceException;
import io.fairlead.device.DeviceStats;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.DriverException;
import io.fairlead.device.spi.MemoryInfo;
import io.fairlead.fault.Mutant;
import io.fairlead.host.HostFaults;
import io.fairlead.host.HostStepper;
import io.fairlead.task.Completion;
import io.fairlead.task.Fork;
import io.fairlead.task.ForkOptions;
import io.fairlead.task.TaskScope;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Fairlead's own pool: who gets a block again, when, and when the driver gets it back. */
class FrontierPoolTest {
  private static final int BYTES = 4096;

  private TestDevice world;

  @AfterEach
  void close() {
    if (world != null) {
      world.close();
    }
  }

  private static MemoryConfig config() {
    return MemoryConfig.defaults().withPool(MemoryPool.FAIRLEAD);
  }

  private HostStepper stepped(MemoryConfig config) {
    world = TestDevice.stepped(config);
    return world.stepper();
  }

  private static long address(DeviceBuffer buffer) {
    return buffer.storage().address;
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

  // --- who gets a block ---------------------------------------------------------------------

  @Test
  void itsOwnStreamHasABlockAgainBeforeItsWorkEnded() {
    stepped(config());
    DeviceBuffer first = world.device.allocate(BYTES);
    long address = address(first);
    DeviceStats before = world.device.context().stats();
    long enqueued = world.device.stream().mark().sequence();
    for (int i = 0; i < 100; i++) {
      first.fill((byte) i);
      first.close();
      first = world.device.allocate(BYTES - i); // rounded, it is the same size
      assertThat(address(first)).isEqualTo(address);
    }
    first.close();

    DeviceStats after = world.device.context().stats();
    assertThat(after.edges()).isEqualTo(before.edges());
    assertThat(world.device.stream().mark().sequence() - enqueued)
        .as("nothing but the fills")
        .isEqualTo(100);
    assertThat(world.device.memory().reused()).isEqualTo(100);
  }

  @Test
  void anotherStreamGetsItOnceItsWorkHasEnded() {
    HostStepper stepper = stepped(config());
    DeviceBuffer buffer = world.device.allocate(BYTES);
    long address = address(buffer);
    DeviceStream other = world.newStream();
    other.fill(buffer, 0, BYTES, (byte) 1);
    buffer.close();

    DeviceBuffer meanwhile = world.device.allocate(BYTES);
    assertThat(address(meanwhile)).isNotEqualTo(address);

    Completion<Void> ended = world.device.context().reached();
    stepper.completeAll();
    assertThat(ended.isDone()).isTrue();
    DeviceBuffer afterwards = world.device.allocate(BYTES);
    assertThat(address(afterwards)).isEqualTo(address);
    meanwhile.close();
    afterwards.close();
  }

  @Test
  void aStreamThatComesAfterTheOthersNeedsNotWait() {
    stepped(config());
    DeviceBuffer buffer = world.device.allocate(BYTES);
    long address = address(buffer);
    DeviceStream other = world.newStream();
    other.fill(buffer, 0, BYTES, (byte) 1);
    buffer.fill((byte) 2); // with an edge, so that this stream comes after the other one
    buffer.close();

    DeviceBuffer again = world.device.allocate(BYTES);
    assertThat(address(again)).isEqualTo(address);
    again.close();
  }

  @Test
  void aJoinedChildsBlockIsItsParents() {
    stepped(config());
    long[] address = new long[1];
    world.tasks.enter(
        "parent",
        0,
        () -> {
          try (TaskScope<Void> scope = world.tasks.scope()) {
            scope.fork(
                () -> {
                  try (DeviceBuffer buffer = world.device.allocate(BYTES)) {
                    buffer.fill((byte) 1);
                    address[0] = address(buffer);
                  }
                  return null;
                });
            scope.join();
          }
          try (DeviceBuffer mine = world.device.allocate(BYTES)) {
            assertThat(address(mine)).isEqualTo(address[0]);
          }
          return null;
        });
  }

  @Test
  void withoutRoomAnUnfinishedBlockIsTakenAndItsNextUseComesAfterTheLast() {
    HostStepper stepper = stepped(config().withLimit(BYTES).withCachedBytesMax(BYTES));
    DeviceBuffer buffer = world.filled(stepper, BYTES, 7);
    MemorySegment host = Arena.ofAuto().allocate(BYTES);
    DeviceStream reader = world.newStream();
    reader.copyToHost(host, buffer, 0);
    buffer.close();

    DeviceBuffer next = world.device.allocate(BYTES); // waiting would hang: nobody steps
    next.fill((byte) 9);
    Completion<Void> ended = world.device.context().reached();
    stepper.completeAll(world.device.stream().handle());
    assertThat(stepper.pending(world.device.stream().handle())).isNotEmpty();
    stepper.completeAll();
    assertThat(ended.isDone()).isTrue();
    assertThat(host.get(ValueLayout.JAVA_BYTE, BYTES - 1)).isEqualTo((byte) 7);
    next.close();
  }

  @Test
  void aUseAfterCloseIsFoundAlthoughTheMemoryHasANewOwner() {
    stepped(config());
    DeviceBuffer stale = world.device.allocate(BYTES);
    stale.close();
    DeviceBuffer owner = world.device.allocate(BYTES);
    assertThat(address(owner)).isEqualTo(address(stale));
    assertThatThrownBy(() -> stale.fill((byte) 1))
        .isInstanceOf(IllegalStateException.class)
        .hasMessageContaining("was closed at")
        .hasMessageContaining("FrontierPoolTest");
    stale.close();
    owner.fill((byte) 2);
    owner.close();
  }

  @Test
  void aLeaseKeepsTheBlockFromItsNextOwner() {
    stepped(config());
    DeviceBuffer buffer = world.device.allocate(BYTES);
    try (Lease lease = buffer.lease(world.device.stream(), Access.READ)) {
      buffer.close();
      try (DeviceBuffer other = world.device.allocate(BYTES)) {
        assertThat(address(other)).isNotEqualTo(lease.address());
      }
    }
  }

  @Test
  void aCaptureGetsNoMemoryEvenIfItLiesReady() {
    world = TestDevice.open(config());
    Device device = world.device;
    device.allocate(BYTES).close();
    device.context().reached().await();
    assertThat(device.memory().cached()).isEqualTo(BYTES);
    world.tasks.enter(
        "captures",
        0,
        () -> {
          device.capture("no memory", stream -> assertNoMemory(device)).close();
          return null;
        });
    assertThat(device.memory().inUse()).isZero();
    assertThat(device.memory().cached()).isEqualTo(BYTES);
  }

  private static void assertNoMemory(Device device) {
    assertThatThrownBy(() -> device.allocate(BYTES))
        .isInstanceOf(IllegalStateException.class)
        .hasMessageContaining("captured");
  }

  // --- what counts --------------------------------------------------------------------------

  @Test
  void aBlockOfAReservationGoesBackToIt() {
    world = TestDevice.open(config().withLimit(1 << 20));
    Device device = world.device;
    world.repeatReserved(
        1 << 20,
        20,
        (reservation, round) -> {
          try (DeviceBuffer buffer = device.allocate(1 << 20)) {
            assertThat(reservation.free()).isZero();
            buffer.fill((byte) round);
          }
        });
  }

  @Test
  void readyBlocksMakeRoomForOtherSizes() {
    world = TestDevice.open(config().withLimit(1 << 20).withCachedBytesMax(1 << 20));
    Device device = world.device;
    for (int round = 0; round < 20; round++) {
      for (int parts : new int[] {4, 3, 2, 1, 5}) {
        List<DeviceBuffer> buffers = new ArrayList<>();
        for (int i = 0; i < parts; i++) {
          DeviceBuffer buffer = device.allocate((1 << 20) / parts & -Sizes.GRANULE);
          buffer.fill((byte) i);
          buffers.add(buffer);
          assertThat(driverUses()).isLessThanOrEqualTo(1 << 20);
        }
        buffers.forEach(DeviceBuffer::close);
      }
    }
    world.awaitNothingInUse();
    assertThat(device.memory().cached()).isPositive().isEqualTo(driverUses());
  }

  @Test
  void noMoreIsKeptThanWasSaid() throws Exception {
    world = TestDevice.open(config().withCachedBytesMax(16 * BYTES));
    Device device = world.device;
    List<DeviceBuffer> buffers = new ArrayList<>();
    for (int i = 0; i < 64; i++) {
      buffers.add(device.allocate(BYTES));
    }
    device.context().reached().await();
    buffers.forEach(DeviceBuffer::close);
    while (device.memory().cached() > 16 * BYTES || driverUses() > 16 * BYTES) {
      Thread.onSpinWait(); // the owner does it; ends by the test's timeout if it never does
    }
    assertThat(device.memory().cached()).isBetween(8L * BYTES, 16L * BYTES);
    DeviceBuffer large = device.allocate(17 * BYTES);
    large.close();
    device.context().reached().await();
    device.trim().await();
    assertThat(driverUses()).isZero();
  }

  /** What is kept keeps the driver from merging what lies between. */
  @Test
  void whereMemoryIsScarceLittleIsKeptOnceAnotherSizeIsAskedFor() {
    List<DeviceBuffer> living = closeSome(1 << 20);
    Device device = world.device;
    living.add(device.allocate(BYTES));
    assertThat(device.memory().cached()).as("its size was there").isEqualTo(49 * BYTES);

    living.add(device.allocate(2 * BYTES));
    long unused = device.memory().limit() - device.memory().inUse();
    while (device.memory().cached() > unused / 16
        || driverUses() > device.memory().inUse() + device.memory().cached()) {
      Thread.onSpinWait(); // who asks waits for a moment only; ends by the test's timeout
    }
    assertThat(device.memory().cached()).as("not all of it").isPositive();
    living.forEach(DeviceBuffer::close);
  }

  /**
   * Memory is scarce. Of what was closed the newest and the oldest are still in use, what lies
   * between is not, and nobody has looked at that yet; somebody else asks for just that size.
   *
   * @return how often he waits for what is kept to be returned
   */
  private long trimsForWhatIsKept() {
    HostStepper stepper = stepped(config().withLimit(1 << 20));
    Device device = world.device;
    FrontierPool pool = (FrontierPool) device.pool();
    List<DeviceBuffer> all = allocate(248, new HashSet<>());
    List<DeviceBuffer> late = new ArrayList<>(all.subList(0, 20));
    late.addAll(all.subList(30, 50));
    stepper.completeAll();
    CountDownLatch filled = new CountDownLatch(1);
    CountDownLatch over = new CountDownLatch(1);
    try (TaskScope<Long> scope = world.tasks.scope()) {
      scope.fork( // open until the end, so that nobody comes after it
          ForkOptions.named("late").eager(true),
          () -> {
            late.forEach(each -> each.fill((byte) 1));
            filled.countDown();
            over.await();
            return 0L;
          });
      while (filled.getCount() > 0) {
        Thread.onSpinWait();
      }
      long early =
          world.tasks.enter(
              "early",
              0,
              () -> {
                all.subList(20, 30).forEach(each -> each.fill((byte) 1));
                return device.stream().handle();
              });
      all.subList(0, 50).forEach(DeviceBuffer::close);
      stepper.completeAll(device.stream().handle()); // what the edges between them wait for
      stepper.completeAll(early);
      assertThat(stepper.pending(early)).isEmpty();
      assertThat(stepper.pending()).as("late").isNotEmpty();
      long reused = pool.reused();
      long waits = pool.trimsAwaited();
      try {
        DeviceBuffer buffer = world.tasks.enter("other", 0, () -> device.allocate(BYTES));
        long more = Mutant.on("pool.scarce.blind") ? 0 : 1;
        assertThat(pool.reused() - reused).as("reused").isEqualTo(more);
        buffer.close();
      } finally {
        over.countDown();
      }
      scope.join();
      all.subList(50, all.size()).forEach(DeviceBuffer::close);
      return pool.trimsAwaited() - waits;
    }
  }

  @Test
  void whoAsksForASizeThatIsKeptWaitsForNothingToBeReturned() {
    assertThat(trimsForWhatIsKept()).isZero();
  }

  @Test
  void aPoolThatReturnsWhatIsAskedForIsFound() {
    try (var _ = Mutant.enable("pool.scarce.blind")) {
      assertThat(trimsForWhatIsKept()).isEqualTo(1);
    }
  }

  @Test
  void whereThereIsEnoughEverythingIsKept() {
    List<DeviceBuffer> living = closeSome(2 << 20);
    living.add(world.device.allocate(2 * BYTES));
    assertThat(world.device.memory().cached()).isEqualTo(50 * BYTES);
    living.forEach(DeviceBuffer::close);
  }

  /** 198 buffers, and 50 more that are not used any more. */
  private List<DeviceBuffer> closeSome(long limit) {
    world = TestDevice.open(config().withLimit(limit));
    List<DeviceBuffer> all = allocate(248, new HashSet<>());
    world.device.context().reached().await();
    for (int i = 0; i < 50; i++) {
      all.remove(3 * i).close();
    }
    world.device.context().reached().await();
    assertThat(world.device.memory().cached()).isEqualTo(50 * BYTES);
    return all;
  }

  @Test
  void aDriverWithoutRoomGetsUnusedBlocksBackBeforeAnybodyIsRefused() {
    world = TestDevice.open(config());
    Device device = world.device;
    device.allocate(BYTES).close();
    device.context().reached().await();
    assertThat(device.memory().cached()).isEqualTo(BYTES);
    HostFaults.of(world.driver).failCall(DriverCall.ALLOC_ASYNC, 1, DriverException.OUT_OF_MEMORY);
    try (DeviceBuffer buffer = device.allocate(2 * BYTES)) {
      buffer.fill((byte) 1);
      assertThat(device.memory().cached()).isZero();
    }
  }

  // --- a driver that refuses a free ---------------------------------------------------------

  @Test
  void aRefusedFreeLosesNeitherItsBlockNorItsNeighbours() {
    long limit = 4 * BYTES;
    world =
        TestDevice.open(
            config().withLimit(limit).withCachedBytesMax(limit).withWait(Duration.ofSeconds(2)));
    Device device = world.device;
    List<DeviceBuffer> buffers = new ArrayList<>();
    for (int i = 0; i < 3; i++) {
      buffers.add(device.allocate(BYTES));
    }
    device.context().reached().await();
    buffers.forEach(DeviceBuffer::close);
    HostFaults.of(world.driver).failCall(DriverCall.FREE_ASYNC, 2, DriverException.INVALID_VALUE);
    Completion<Void> trimmed = device.trim();
    assertThatThrownBy(trimmed::await)
        .isInstanceOf(DeviceException.class)
        .hasMessageContaining("injected");

    assertThat(device.memory().cached()).isEqualTo(BYTES).isEqualTo(driverUses());
    // the whole limit: it would not fit if one of them were still counted, or could not be found
    try (DeviceBuffer all = device.allocate(limit)) {
      all.fill((byte) 1);
    }
    device.context().reached().await();
    device.trim().await();
    assertThat(driverUses()).isZero();
  }

  @Test
  void anAllocationIsTheBetterForWhatWasNotRefused() {
    long limit = 4 * BYTES;
    world = TestDevice.open(config().withLimit(limit).withCachedBytesMax(limit));
    Device device = world.device;
    List<DeviceBuffer> buffers = new ArrayList<>();
    for (int i = 0; i < 4; i++) {
      buffers.add(device.allocate(BYTES));
    }
    device.context().reached().await();
    buffers.forEach(DeviceBuffer::close);
    HostFaults faults = HostFaults.of(world.driver);
    faults.failCall(DriverCall.FREE_ASYNC, 1, DriverException.INVALID_VALUE);
    device.allocate(2 * BYTES).close(); // two others make room
    device.context().reached().await();
    faults.failCall(DriverCall.FREE_ASYNC, 1, DriverException.INVALID_VALUE);
    assertThatThrownBy(() -> device.allocate(limit))
        .as("no room without that one")
        .isInstanceOf(DeviceException.class)
        .hasMessageContaining("injected");
    device.allocate(limit).close();
  }

  @Test
  void whatTheDriverDoesNotTakeBackAtACloseIsKept() {
    world = TestDevice.open(config().withCachedBytesMax(BYTES));
    Device device = world.device;
    DeviceBuffer large = device.allocate(2 * BYTES);
    HostFaults.of(world.driver).failCall(DriverCall.FREE_ASYNC, 1, DriverException.INVALID_VALUE);
    large.close();
    world.awaitNothingInUse();
    device.trim().await();
    assertThat(driverUses()).isZero();
  }

  @Test
  void closingTheDeviceReturnsAllButWhatIsRefused() {
    world = TestDevice.open(config());
    Device device = world.device;
    for (int i = 1; i < 10; i++) {
      DeviceBuffer buffer = device.allocate((long) i * BYTES);
      buffer.fill((byte) i);
      buffer.close();
    }
    long context = world.driver.retain(0); // as another library in the process does
    HostFaults.of(world.driver).failCall(DriverCall.FREE_ASYNC, 3, DriverException.INVALID_VALUE);
    device.close();
    long token = world.driver.bind(context);
    MemoryInfo info = world.driver.memoryInfo(context);
    world.driver.restore(context, token);
    assertThat(info.totalBytes() - info.freeBytes()).isBetween((long) BYTES, 9L * BYTES);
    world.driver.release(context);
  }

  // --- its end ------------------------------------------------------------------------------

  @Test
  void closingTheDeviceReturnsWhatItKeeps() {
    world = TestDevice.open(config());
    Device device = world.device;
    DeviceStream stream = world.newStream();
    for (int i = 1; i < 10; i++) {
      DeviceBuffer buffer = device.allocate((long) i * BYTES);
      stream.fill(buffer, 0, BYTES, (byte) i);
      buffer.close();
    }
    long context = device.context().nativeContext();
    long retained = world.driver.retain(0); // as another library in the process does
    device.close();
    assertThat(retained).isEqualTo(context);
    long token = world.driver.bind(context);
    MemoryInfo info = world.driver.memoryInfo(context);
    world.driver.restore(context, token);
    assertThat(info.freeBytes()).isEqualTo(info.totalBytes());
    world.driver.release(retained);
  }

  @Test
  void whatItKeepsEndsWithTheContext() {
    HostStepper stepper = stepped(config());
    Device device = world.device;
    DeviceBuffer ready = world.filled(stepper, BYTES, 1);
    ready.close();
    DeviceBuffer used = device.allocate(2 * BYTES);
    used.fill((byte) 2);
    used.close();
    assertThat(device.memory().cached()).isEqualTo(BYTES);
    assertThat(device.memory().pendingFree()).isEqualTo(2 * BYTES);
    DeviceBuffer kept = device.allocate(3 * BYTES);
    HostFaults.of(world.driver).failOperation(DriverCall.FILL, 1, DriverException.ILLEGAL_ADDRESS);
    kept.fill((byte) 3);
    Completion<Void> ended = device.context().reached();
    stepper.completeAll();
    assertThatThrownBy(ended::await).isInstanceOf(DeviceException.class);

    kept.close();
    assertThat(device.memory().inUse()).isZero();
    assertThat(device.memory().cached()).isZero();
  }

  /** What that device read ended with it; what others read did not. */
  @Test
  void aDeviceThatIsLostEndsItsOwnUsesOnly() {
    MemoryConfig config = config().withLimit(4 * BYTES);
    world = TestDevice.open(config, Map.of("stepped", "true", "devices", "2"));
    HostStepper stepper = world.stepper();
    Device losing = world.devices.get(1);
    DeviceBuffer target = losing.allocate(BYTES);
    DeviceBuffer faulty = losing.allocate(BYTES);
    DeviceStream faulting = losing.context().openStream(0);
    Completion<Void> made = losing.context().reached();
    DeviceBuffer buffer = world.filled(stepper, BYTES, 7);
    assertThat(made.isDone()).isTrue();

    target.copyFrom(buffer);
    MemorySegment host = Arena.ofAuto().allocate(BYTES);
    DeviceStream reader = world.newStream();
    reader.copyToHost(host, buffer, 0);
    buffer.close();
    Completion<Reservation> all = world.device.requestReservation(4 * BYTES);
    assertThat(all.isDone()).isFalse();

    HostFaults.of(world.driver).failOperation(DriverCall.FILL, 1, DriverException.ILLEGAL_ADDRESS);
    faulting.fill(faulty, 0, BYTES, (byte) 1);
    stepper.completeAll(faulting.handle());
    assertThat(losing.context().isLost()).isTrue();
    assertThat(stepper.pending(reader.handle())).isNotEmpty();
    assertThat(all.isDone()).isFalse();

    stepper.completeAll();
    assertThat(host.get(ValueLayout.JAVA_BYTE, BYTES - 1)).isEqualTo((byte) 7);
    all.getNow().close();
    faulting.close();
    target.close();
    faulty.close();
  }

  /** Memory of a sound device is not lost with one that has read it. */
  @Test
  void whatALostDeviceHasReadIsUsedOn() {
    MemoryConfig config = config().withLimit(2 * BYTES).withCachedBytesMax(2 * BYTES);
    world = TestDevice.open(config, Map.of("stepped", "true", "devices", "2"));
    HostStepper stepper = world.stepper();
    Device losing = world.devices.get(1);
    DeviceBuffer target = losing.allocate(BYTES);
    DeviceBuffer faulty = losing.allocate(BYTES);
    DeviceStream faulting = losing.context().openStream(0);
    Completion<Void> made = losing.context().reached();
    DeviceBuffer closed = world.filled(stepper, BYTES, 7);
    DeviceBuffer open = world.filled(stepper, BYTES, 8);
    assertThat(made.isDone()).isTrue();
    target.copyFrom(closed);
    target.copyFrom(open);
    long address = address(closed);
    closed.close();
    HostFaults.of(world.driver).failOperation(DriverCall.FILL, 1, DriverException.ILLEGAL_ADDRESS);
    faulting.fill(faulty, 0, BYTES, (byte) 1);
    stepper.completeAll(faulting.handle());
    assertThat(losing.context().isLost()).isTrue();

    DeviceBuffer next = world.device.allocate(BYTES);
    assertThat(address(next)).isEqualTo(address);
    next.fill((byte) 9);
    open.fill((byte) 9);
    Completion<Void> ended = world.device.context().reached();
    stepper.completeAll();
    ended.await();
    next.close();
    open.close();
    faulting.close();
    target.close();
    faulty.close();
  }

  @Test
  void itsOwnStreamIsNobodysLeakAlsoIfTheDeviceIsLost() {
    HostStepper stepper = stepped(config());
    Device device = world.device;
    world.filled(stepper, BYTES, 1).close();
    Completion<Void> trimmed = device.trim();
    DeviceBuffer kept = device.allocate(2 * BYTES);
    HostFaults.of(world.driver).failOperation(DriverCall.FILL, 1, DriverException.ILLEGAL_ADDRESS);
    kept.fill((byte) 3);
    world.awaitRetired(); // behind the trim
    Completion<Void> ended = device.context().reached();
    stepper.completeAll();
    assertThat(ended.cause()).isInstanceOf(DeviceException.class);
    trimmed.await(); // the owner may be telling it just now
    kept.close();
    device.close();
    assertThat(device.context().stats().leaks()).isZero();
  }

  // --- many at once -------------------------------------------------------------------------

  @Test
  void tasksThatShareSizesShareBlocks() {
    world = TestDevice.open(config());
    Device device = world.device;
    try (TaskScope<Boolean> scope = world.tasks.scope()) {
      List<Fork<Boolean>> forks = new ArrayList<>();
      for (int t = 0; t < 16; t++) {
        byte value = (byte) t;
        forks.add(scope.fork(() -> usesManyBuffers(device, value)));
      }
      assertThat(scope.join()).hasSize(forks.size()).containsOnly(true);
    }
    world.awaitNothingInUse();
    assertThat(device.memory().reused()).isPositive();
    assertThat(device.memory().cached()).isEqualTo(driverUses());
  }

  private static boolean usesManyBuffers(Device device, byte value) {
    for (int i = 0; i < 50; i++) {
      try (DeviceBuffer buffer = device.allocate(BYTES)) {
        buffer.fill(value);
        assertThat(buffer.toBytes()).containsOnly(value);
      }
    }
    return true;
  }

  @Test
  void ofSeveralOfOneSizeEachIsHadAgainAndNoneTwice() {
    world = TestDevice.open(config());
    Set<Long> before = new HashSet<>();
    List<DeviceBuffer> buffers = allocate(5, before);
    assertThat(before).hasSize(5);
    buffers.forEach(DeviceBuffer::close);
    world.device.context().reached().await();
    Set<Long> after = new HashSet<>();
    allocate(5, after).forEach(DeviceBuffer::close);
    assertThat(after).isEqualTo(before);
    world.device.trim().await();
    assertThat(world.device.memory().cached()).isZero();
    assertThat(driverUses()).as("the newest too is the driver's again").isZero();
  }

  private List<DeviceBuffer> allocate(int count, Set<Long> addresses) {
    List<DeviceBuffer> buffers = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      buffers.add(world.device.allocate(BYTES));
      addresses.add(address(buffers.getLast()));
    }
    return buffers;
  }

  /** Of small ones and of large ones, whose bin goes when it is empty. */
  @ParameterizedTest
  @ValueSource(longs = {BYTES, (1 << 20) + 256})
  void whereManyDisplaceEachOthersNoBlockIsLost(long bytes) {
    world = TestDevice.open(config(), Map.of("memory", "" + (64L << 20)));
    Device device = world.device;
    try (TaskScope<Boolean> scope = world.tasks.scope()) {
      for (int t = 0; t < 8; t++) {
        scope.fork(ForkOptions.DEFAULT.eager(true), () -> allocatesAndCloses(device, bytes));
      }
      assertThat(scope.join()).hasSize(8).containsOnly(true);
    }
    world.awaitNothingInUse();
    assertThat(device.memory().cached()).isEqualTo(driverUses());
    device.trim().await();
    assertThat(device.memory().cached()).isZero();
    assertThat(driverUses()).isZero();
  }

  private static boolean allocatesAndCloses(Device device, long bytes) {
    for (int i = 0; i < 2_000; i++) {
      try (DeviceBuffer one = device.allocate(bytes);
          DeviceBuffer other = device.allocate(bytes)) {
        if (address(one) == address(other)) {
          return false;
        }
      }
      if (i % 500 == 0) {
        device.trim().await();
      }
    }
    return true;
  }

  // --- places -------------------------------------------------------------------------------

  @Test
  void ofVeryManyBuffersSomeRememberTheirPlaces() {
    Site first = new Sites(CreationSites.SAMPLED).caller();
    assertThat(first.isKnown()).isTrue();
    Sites sites = new Sites(CreationSites.SAMPLED);
    int known = 0;
    Site made = first;
    while (made.isKnown() && known < 1_000_000) {
      made = sites.caller();
      known++;
    }
    assertThat(known).as("enough for what a program keeps").isGreaterThan(1000);
    assertThat(made.toString()).contains("-Dfairlead.memory.sites=all");
    assertThat(sites.callerOfSame(made)).isSameAs(made);
    long end = System.nanoTime() + Duration.ofSeconds(60).toNanos();
    while (!made.isKnown() && System.nanoTime() < end) {
      made = sites.caller();
    }
    assertThat(made.isKnown()).as("time earns the next one").isTrue();
    assertThat(sites.callerToTell().isKnown()).as("an error always names its place").isTrue();
    assertThat(new Sites(CreationSites.NONE).callerToTell().isKnown()).isFalse();
  }

  // --- settings -----------------------------------------------------------------------------

  @Test
  void thePoolIsASetting() {
    Properties properties = new Properties();
    assertThat(MemoryConfig.from(properties).pool()).isEqualTo(MemoryPool.FAIRLEAD);
    properties.setProperty("fairlead.memory.pool", "Driver");
    assertThat(MemoryConfig.from(properties).pool()).isEqualTo(MemoryPool.DRIVER);
    properties.setProperty("fairlead.memory.pool", "lake");
    assertThatThrownBy(() -> MemoryConfig.from(properties))
        .isInstanceOf(IllegalArgumentException.class)
        .hasMessageContaining("fairlead.memory.pool is 'lake'")
        .hasMessageContaining("driver or fairlead or arena");
    properties.setProperty("fairlead.memory.pool", "fairlead");
    properties.setProperty("fairlead.memory.sites", "all");
    assertThat(MemoryConfig.from(properties).creationSites()).isEqualTo(CreationSites.ALL);
    assertThatThrownBy(() -> MemoryConfig.defaults().withCachedBytesMax(-2))
        .isInstanceOf(IllegalArgumentException.class);
  }

  @Test
  void theDriversPoolKeepsNothing() {
    world = TestDevice.open(config().withPool(MemoryPool.DRIVER));
    world.device.allocate(BYTES).close();
    world.device.context().reached().await();
    assertThat(world.device.memory().cached()).isZero();
    assertThat(driverUses()).isZero();
    world.device.trim().await();
  }
}
