package io.fairlead.memory;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.OutOfDeviceMemoryException;
import io.fairlead.fault.Mutant;
import io.fairlead.task.ForkOptions;
import io.fairlead.task.TaskScope;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.function.LongSupplier;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * The device has not a byte more than the limit, so its room may lie in pieces: who has been
 * granted his bytes may have no block for them.
 */
@Timeout(60)
class RefusedBlockTest {
  private static final int KIB = 1 << 10;
  private static final int LIMIT = 100 * KIB;

  private TestDevice world;
  private Device device;

  @BeforeEach
  void open() {
    MemoryConfig config =
        MemoryConfig.defaults()
            .withLimit(LIMIT)
            .withChunk(4096)
            .withWait(Duration.ofHours(1))
            .withGrace(Duration.ofHours(1))
            .withSpill(SpillConfig.TO_HOST.withHostBytesMax(16 << 20));
    world = TestDevice.open(config, Map.of("memory", Integer.toString(LIMIT)));
    device = world.device;
  }

  @AfterEach
  void close() {
    world.awaitRetired(); // who was cancelled leaves it to the owner to free what he had
    world.awaitNothingInUse();
    world.close();
  }

  /**
   * 40 KiB of the first, 20 free, 20 of the second, 20 free: the first is granted 30 more, has no
   * block for them, and waits for room; what it was granted is what the second one lacks.
   */
  @Test
  void whoHasBytesAndNoBlockIsSeenToKeepThem() {
    CountDownLatch firstHolds = new CountDownLatch(1);
    CountDownLatch secondHolds = new CountDownLatch(1);
    try (TaskScope<Long> scope = world.tasks.scope()) {
      scope.fork(
          eager("first"),
          () ->
              Oom.retry(
                  device,
                  () -> {
                    try (DeviceBuffer own = device.allocate(40 * KIB);
                        Hold hold = own.hold()) {
                      firstHolds.countDown();
                      awaitQuietly(secondHolds);
                      return wantMore(hold);
                    }
                  }));
      scope.fork(
          eager("second"),
          () -> {
            firstHolds.await();
            return Oom.retry(device, () -> second(secondHolds));
          });
      assertThat(scope.join()).containsExactly(30L * KIB, 30L * KIB);
    }
    MemoryStats.Waits waits = device.memory().waits();
    assertThat(waits.rollbacks()).as("rollbacks").isEqualTo(1);
    assertThat(waits.needless()).as("needless").isZero();
  }

  private long second(CountDownLatch holds) {
    DeviceBuffer between = device.allocate(20 * KIB);
    try (DeviceBuffer own = device.allocate(20 * KIB);
        Hold hold = own.hold()) {
      between.close();
      boolean isFirst = holds.getCount() > 0;
      holds.countDown();
      while (isFirst && device.memory().waits().now() == 0) {
        LockSupport.parkNanos(100_000);
      }
      return wantMore(hold);
    }
  }

  private long wantMore(Hold hold) {
    try (hold;
        DeviceBuffer more = device.allocate(30 * KIB)) {
      return more.bytes();
    }
  }

  /** All of the device, in five pieces of 20 KiB, side by side. */
  private List<DeviceBuffer> pieces() {
    List<DeviceBuffer> pieces = new ArrayList<>();
    for (int i = 0; i < 5; i++) {
      pieces.add(device.allocate(20 * KIB));
    }
    return pieces;
  }

  /** 60 KiB are free then, and no two of these pieces are neighbours. */
  private void leaveGaps(List<DeviceBuffer> pieces) {
    pieces.get(0).close();
    pieces.get(2).close();
    pieces.get(4).close();
    device.context().reached().await();
    while (device.memory().pendingFree() > 0) { // or who asks for them waits for that, and no more
      LockSupport.parkNanos(100_000);
    }
  }

  /**
   * The first, in a try, has 60 KiB in pieces of 20, no block, and the turn; the second holds what
   * is between them, is in no try, and wants the turn. The first gives it up.
   */
  private void whoHasTheTurnGivesWay() {
    whoHasTheTurnGivesWay(
        () -> {
          try (DeviceBuffer large = device.allocate(60 * KIB)) {
            return large.bytes();
          }
        });
  }

  private void whoHasTheTurnGivesWay(LongSupplier wants) {
    List<DeviceBuffer> pieces = pieces();
    CountDownLatch holds = new CountDownLatch(1);
    AtomicInteger runs = new AtomicInteger();
    try (TaskScope<Long> scope = world.tasks.scope()) {
      scope.fork(
          eager("holds"),
          () -> {
            try (DeviceBuffer below = device.allocate(20 * KIB);
                Hold one = pieces.get(1).hold();
                Hold two = pieces.get(3).hold()) {
              below.fill((byte) 1);
              below.spill().await();
              leaveGaps(pieces);
              holds.countDown();
              while (!device.returns().isTaken() || !device.budget().hasWaiting()) {
                LockSupport.parkNanos(100_000);
              }
              below.fill((byte) 2); // waits for the turn
              return one == two ? 0 : below.bytes();
            }
          });
      scope.fork(
          eager("wants"),
          () -> {
            holds.await();
            return Oom.retry(
                device,
                () -> {
                  runs.incrementAndGet();
                  return wants.getAsLong();
                });
          });
      assertThat(scope.join()).containsExactly(20L * KIB, 60L * KIB);
    } finally {
      pieces.forEach(DeviceBuffer::close);
    }
    assertThat(runs).as("runs of the try").hasValueGreaterThan(1);
    assertThat(device.memory().waits().failures()).as("failures").isZero();
  }

  @Test
  void aTryThatHasTheTurnGivesWayBeforeAnybodyFails() {
    whoHasTheTurnGivesWay();
  }

  /** It is who waits that gives way, not who made what he brings back: he is in no try. */
  private void whoBringsBackWhatOthersHaveMadeGivesWay() {
    try (DeviceBuffer large = device.allocate(60 * KIB)) {
      large.fill((byte) 1);
      large.spill().await();
      whoHasTheTurnGivesWay(
          () -> {
            large.fill((byte) 3);
            return large.bytes();
          });
    }
  }

  @Test
  void soDoesOneThatBringsBack() {
    whoBringsBackWhatOthersHaveMadeGivesWay();
  }

  @Test
  void whoTakesTheMakerForHimIsFound() {
    try (var _ = Mutant.enable("memory.besides.of-maker")) {
      assertThatThrownBy(this::whoBringsBackWhatOthersHaveMadeGivesWay)
          .isInstanceOf(OutOfDeviceMemoryException.class);
    }
  }

  @Test
  void whoForgetsThatTheTurnIsKeptIsFound() {
    try (var _ = Mutant.enable("oom.turn.kept-by-nobody");
        var _ = Mutant.enable("oom.paid.kept-by-nobody")) { // he was granted bytes, too
      assertThatThrownBy(this::whoHasTheTurnGivesWay)
          .isInstanceOf(OutOfDeviceMemoryException.class);
    }
  }

  /**
   * Two tries: the older holds what is between 60 KiB in pieces of 20; the younger was granted 50
   * and has no block for them, which is what the older lacks for 20 more. So it is not alone in the
   * way, and the younger gives way.
   */
  private void whoWasGrantedWhatOthersLackGivesWay() {
    List<DeviceBuffer> pieces = pieces();
    CountDownLatch holds = new CountDownLatch(1);
    AtomicInteger older = new AtomicInteger();
    AtomicInteger younger = new AtomicInteger();
    try (TaskScope<Long> scope = world.tasks.scope()) {
      scope.fork(
          eager("holds"),
          () ->
              Oom.retry(
                  device,
                  () -> {
                    older.incrementAndGet();
                    try (Hold one = pieces.get(1).hold();
                        Hold two = pieces.get(3).hold()) {
                      leaveGaps(pieces);
                      holds.countDown();
                      while (!device.returns().isTaken() || !device.budget().hasWaiting()) {
                        LockSupport.parkNanos(100_000);
                      }
                      try (DeviceBuffer more = device.allocate(20 * KIB)) {
                        return one == two ? 0 : more.bytes();
                      }
                    }
                  }));
      scope.fork(
          eager("wants"),
          () -> {
            holds.await();
            return Oom.retry(
                device,
                () -> {
                  younger.incrementAndGet();
                  try (DeviceBuffer large = device.allocate(50 * KIB)) {
                    return large.bytes();
                  }
                });
          });
      assertThat(scope.join()).containsExactly(20L * KIB, 50L * KIB);
    } finally {
      pieces.forEach(DeviceBuffer::close);
    }
    assertThat(older).as("runs of the older").hasValue(1);
    assertThat(younger).as("runs of the younger").hasValueGreaterThan(1);
    MemoryStats.Waits waits = device.memory().waits();
    assertThat(waits.failures()).as("failures").isZero();
    assertThat(waits.splits()).as("splits").isZero();
  }

  @Test
  void aTryIsNotAloneWhereAnotherOneWasGrantedWhatItLacks() {
    whoWasGrantedWhatOthersLackGivesWay();
  }

  @Test
  void whoForgetsWhatWasGrantedIsFound() {
    try (var _ = Mutant.enable("oom.paid.kept-by-nobody")) {
      assertThatThrownBy(this::whoWasGrantedWhatOthersLackGivesWay)
          .isInstanceOf(OutOfDeviceMemoryException.class)
          .hasMessageContaining("all that is in its way is its own");
    }
  }

  private static void awaitQuietly(CountDownLatch latch) {
    try {
      latch.await();
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
  }

  private static ForkOptions eager(String name) {
    return ForkOptions.named(name).eager(true);
  }
}
