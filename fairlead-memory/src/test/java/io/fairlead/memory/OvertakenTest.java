package io.fairlead.memory;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.OutOfDeviceMemoryException;
import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.DriverException;
import io.fairlead.fault.Mutant;
import io.fairlead.host.HostFaults;
import io.fairlead.task.ForkOptions;
import io.fairlead.task.TaskScope;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;
import java.util.function.LongSupplier;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * A full device, and tasks that go on all the time with buffers that have to come back for it:
 * whoever else asks for memory gets it, however long they go on.
 */
@Timeout(60)
class OvertakenTest {
  private static final int KIB = 1 << 10;
  private static final int PIECE = 4 * KIB;
  private static final int LIMIT = 64 * KIB;

  /** Each has two pieces: twice as much as the device has. */
  private static final int TASKS = 16;

  private final TestDevice world = TestDevice.open(config(Duration.ofHours(1)));
  private final Device device = world.device;
  private final AtomicBoolean over = new AtomicBoolean();

  @AfterEach
  void nothingIsLeft() {
    world.awaitNothingLeft();
    assertThat(device.budget().hasWaiting()).as("somebody waits").isFalse();
    assertThat(device.returns().isTaken()).as("the turn is taken").isFalse();
    world.close();
  }

  private static MemoryConfig config(Duration wait) {
    return MemoryConfig.defaults()
        .withLimit(LIMIT)
        .withChunk(4096)
        .withWait(wait)
        .withGrace(Duration.ofHours(1))
        .withSpill(SpillConfig.TO_HOST.withHostBytesMax(16 << 20));
  }

  @Test
  void whoHasNothingYetGetsRoom() {
    besideOthers(
        () -> {
          try (DeviceBuffer buffer = device.allocate(PIECE)) {
            buffer.fill((byte) 1);
            return buffer.bytes();
          }
        });
  }

  /** What comes back is always smaller, and always fits first. */
  @Test
  void soDoesWhoWantsMuchAtOnce() {
    besideOthers(
        () -> {
          try (DeviceBuffer buffer = device.allocate(LIMIT / 2)) {
            buffer.fill((byte) 1);
            return buffer.bytes();
          }
        });
  }

  @Test
  void soDoesWhoHasSomeAndWantsAllThatThereIs() {
    besideOthers(
        () -> {
          try (DeviceBuffer some = device.allocate(PIECE);
              DeviceBuffer all = device.allocate(LIMIT)) {
            all.fill((byte) 1);
            return some.bytes() + all.bytes();
          }
        });
  }

  /** Each of these is one more who begins, while those who have begun go on. */
  @Test
  void soDoManyWhoBegin() {
    besideOthers(
        () -> {
          try (TaskScope<Long> scope = world.tasks.scope()) {
            for (int i = 0; i < 20; i++) {
              scope.fork(
                  ForkOptions.named("begins").eager(true),
                  () -> {
                    try (DeviceBuffer one = device.allocate(PIECE);
                        DeviceBuffer other = device.allocate(PIECE)) {
                      other.copyFrom(one);
                      return other.bytes();
                    }
                  });
            }
            return scope.join().size();
          }
        });
  }

  /** The answer to a wish is the next one, and all of it is done by who makes room. */
  private void allocateBesideWishes(Device full) {
    try (DeviceBuffer leased = full.allocate(PIECE);
        Lease lease = leased.lease(full.stream());
        DeviceBuffer idle = full.allocate(LIMIT - PIECE)) {
      idle.fill((byte) 1);
      wishAgain(leased);
      try (DeviceBuffer other = full.allocate(PIECE)) {
        assertThat(other.bytes()).isEqualTo(lease.bytes());
      } finally {
        over.set(true);
      }
    }
  }

  private void wishAgain(DeviceBuffer leased) {
    if (!over.get()) {
      leased.spill().onDone(_ -> wishAgain(leased));
    }
  }

  @Test
  void whoWaitsForRoomIsSeenBesideWishesWithoutEnd() {
    allocateBesideWishes(device);
  }

  @Test
  void whoGrantsWishesAsLongAsThereAreAnyIsFound() {
    try (TestDevice other = TestDevice.open(config(Duration.ofMillis(300)));
        var _ = Mutant.enable("spill.wishes.all")) {
      assertThatThrownBy(() -> allocateBesideWishes(other.device))
          .isInstanceOf(OutOfDeviceMemoryException.class);
    }
  }

  /** The smaller is to leave first; where it cannot for once, the larger one can all the same. */
  private Tier tierOfTheLarger() {
    try (DeviceBuffer smaller = device.allocate(LIMIT / 4);
        DeviceBuffer larger = device.allocate(3 * LIMIT / 4)) {
      smaller.priority(-1);
      smaller.fill((byte) 1);
      larger.fill((byte) 2);
      device.context().reached().await();
      HostFaults faults = HostFaults.of(world.driver);
      faults.failCall(DriverCall.HOST_ALLOC, 1, DriverException.OUT_OF_MEMORY);
      try (DeviceBuffer other = device.allocate(LIMIT / 4)) {
        assertThat(other.bytes()).isEqualTo(smaller.bytes());
        return larger.tier();
      }
    }
  }

  @Test
  void onePinThatIsRefusedDoesNotKeepLargerOnesFromLeaving() {
    assertThat(tierOfTheLarger()).isEqualTo(Tier.HOST);
  }

  @Test
  void whoTakesOneRefusalForAFullHostIsFound() {
    try (var _ = Mutant.enable("spill.refused.once")) {
      assertThat(tierOfTheLarger()).isEqualTo(Tier.DEVICE);
    }
  }

  /** As long as that has not ended, the others go on. */
  private void besideOthers(LongSupplier what) {
    CountDownLatch allHaveBegun = new CountDownLatch(TASKS);
    try (TaskScope<Integer> scope = world.tasks.scope()) {
      for (int i = 0; i < TASKS; i++) {
        scope.fork(ForkOptions.named("goes on").eager(true), () -> goOn(allHaveBegun));
      }
      try {
        awaitAll(allHaveBegun);
        world.tasks.enter(
            "asks",
            0,
            () -> {
              long _ = what.getAsLong();
              return null;
            });
      } finally {
        over.set(true);
      }
      assertThat(scope.join()).hasSize(TASKS).containsOnly(2);
    }
    assertThat(device.memory().returns()).as("buffers that came back").isPositive();
  }

  private static void awaitAll(CountDownLatch latch) {
    while (latch.getCount() > 0) {
      LockSupport.parkNanos(100_000);
    }
  }

  /** Not before all have their buffers, since who allocates is what this is about. */
  private int goOn(CountDownLatch allHaveBegun) throws InterruptedException {
    List<DeviceBuffer> own = new ArrayList<>();
    for (int i = 0; i < 2; i++) {
      own.add(device.allocate(PIECE));
      own.get(i).fill((byte) i);
    }
    allHaveBegun.countDown();
    allHaveBegun.await();
    while (!over.get()) {
      own.get(0).copyFrom(own.get(1));
      own.get(1).copyFrom(own.get(0));
    }
    own.forEach(DeviceBuffer::close);
    return own.size();
  }
}
