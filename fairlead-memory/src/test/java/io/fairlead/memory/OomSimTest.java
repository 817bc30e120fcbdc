package io.fairlead.memory;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.device.OutOfDeviceMemoryException;
import io.fairlead.fault.Mutant;
import io.fairlead.task.ForkOptions;
import io.fairlead.task.TaskScope;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.LongStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * Many pieces of work that keep what they have and want more, a few of them at once: each would fit
 * alone, together they do not. All of them end, and nobody is rolled back whose request could have
 * been granted, as the device's own second look at each rollback sees it.
 */
@Timeout(60)
class OomSimTest {
  private static final int KIB = 1 << 10;
  private static final long LIMIT = 1024 * KIB;

  /** As the Monte Carlo of the Spark plugin: pieces of work, at once, most that one takes. */
  private static final int WORK = 12;

  private static final int AT_ONCE = 4;
  private static final int STEPS_MAX = 50;

  private final AtomicLong needless = new AtomicLong();
  private final AtomicLong allocations = new AtomicLong();
  private final AtomicLong inTheirOwnWay = new AtomicLong();
  private boolean mayBeInItsOwnWay;

  static LongStream seeds() {
    return LongStream.rangeClosed(1, Boolean.getBoolean("fairlead.long") ? 500 : 12);
  }

  @ParameterizedTest
  @MethodSource("seeds")
  void allWorkThatFitsAloneEnds(long seed) {
    run(config(), seed, LIMIT);
    assertThat(needless).as("needless rollbacks, seed %d", seed).hasValue(0);
  }

  @ParameterizedTest
  @MethodSource("seeds")
  void soItDoesWithoutSpilling(long seed) {
    run(config().withSpill(SpillConfig.OFF), seed, LIMIT);
  }

  /** Each takes at most what the Spark plugin's takes: little contention. */
  @ParameterizedTest
  @MethodSource("seeds")
  void soItDoesWhereOneTakesLessThanAThird(long seed) {
    run(config(), seed, 300 * KIB);
    assertThat(needless).as("needless rollbacks, seed %d", seed).hasValue(0);
  }

  /** Its room lies in pieces then, and who has bytes may have no block for them. */
  @ParameterizedTest
  @MethodSource("seeds")
  void soItDoesWhereTheDeviceHasNoMoreThanTheLimit(long seed) {
    run(config(), Map.of("memory", Long.toString(LIMIT)), seed, 300 * KIB);
    assertThat(needless).as("needless rollbacks, seed %d", seed).hasValue(0);
  }

  /**
   * Where each may take all of it besides, whoever lacks a block stands behind others who want all
   * that there is, and they behind him for the turn. What one holds by itself may leave the room
   * that it wants in pieces; then it is told so.
   */
  @ParameterizedTest
  @MethodSource("seeds")
  void soItDoesWhereEachMayTakeAllThatTheDeviceHas(long seed) {
    mayBeInItsOwnWay = true;
    run(config(), Map.of("memory", Long.toString(LIMIT)), seed, LIMIT);
    assertThat(needless).as("needless rollbacks, seed %d", seed).hasValue(0);
  }

  /** Each keeps a little and wants more; all of them wait at once before the first one goes on. */
  @Test
  @Timeout(600)
  void manyThousandTasksWaitAtOnceAndEnd() {
    int tasks = Boolean.getBoolean("fairlead.long") ? 100_000 : 10_000;
    try (TestDevice world = TestDevice.open(config(), Map.of())) {
      waitAtOnceAndEnd(world, tasks);
      nothingIsLeft(world);
    }
  }

  /** Their parent has a table that all of them use, so that each of them goes on with its work. */
  @Test
  @Timeout(600)
  void soDoManyChildrenOfOneThatHasMemory() {
    int tasks = Boolean.getBoolean("fairlead.long") ? 10_000 : 1_000;
    try (TestDevice world = TestDevice.open(config(), Map.of())) {
      world.tasks.enter(
          "parent",
          0,
          () -> {
            try (DeviceBuffer table = world.device.allocate(8 * KIB)) {
              waitAtOnceAndEnd(world, tasks);
              return table.bytes();
            }
          });
      // not one for each: what one gives back goes to those who have begun, and they end
      assertThat(world.device.memory().waits().rollbacks()).as("rollbacks").isLessThan(tasks / 4);
      nothingIsLeft(world);
    }
  }

  private static void waitAtOnceAndEnd(TestDevice world, int tasks) {
    Device device = world.device;
    CountDownLatch taken = new CountDownLatch(1);
    CountDownLatch allWait = new CountDownLatch(1);
    try (TaskScope<Integer> scope = world.tasks.scope()) {
      scope.fork(eager("holder"), () -> holdUntil(device, taken, allWait));
      awaitQuietly(taken);
      for (int i = 0; i < tasks; i++) {
        scope.fork(eager("task"), () -> Oom.retry(device, () -> keepAndWant(device)));
      }
      while (device.budget().waitingCount() < tasks) {
        LockSupport.parkNanos(100_000);
      }
      allWait.countDown();
      assertThat(scope.join()).hasSize(tasks + 1);
    }
  }

  private static void awaitQuietly(CountDownLatch latch) {
    try {
      latch.await();
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
  }

  private static void nothingIsLeft(TestDevice world) {
    world.awaitNothingInUse();
    MemoryStats.Waits waits = world.device.memory().waits();
    assertThat(waits.rollbacks()).as("rollbacks").isPositive();
    assertThat(waits.needless()).as("needless ones").isZero();
  }

  private static int holdUntil(Device device, CountDownLatch taken, CountDownLatch allWait)
      throws InterruptedException {
    try (DeviceBuffer all = device.allocate(LIMIT - 8 * KIB);
        Hold hold = all.hold()) {
      taken.countDown();
      allWait.await();
      return hold == null ? 0 : 1;
    }
  }

  private static ForkOptions eager(String name) {
    return ForkOptions.named(name).eager(true);
  }

  private static int keepAndWant(Device device) {
    try (DeviceBuffer one = device.allocate(48 * KIB);
        Hold hold = one.hold();
        DeviceBuffer other = device.allocate(48 * KIB)) {
      other.fill((byte) 1);
      return hold == null ? 0 : 1;
    }
  }

  @Test
  void whoForgetsWhatCouldBeSpilledIsFound() {
    try (var _ = Mutant.enable("oom.spillable.stuck")) {
      for (long seed = 1; seed <= 20 && needless.get() == 0; seed++) {
        run(config(), seed, LIMIT);
      }
    }
    assertThat(needless).as("needless rollbacks").hasPositiveValue();
  }

  private static MemoryConfig config() {
    return MemoryConfig.defaults()
        .withLimit(LIMIT)
        .withChunk(64 * KIB)
        .withWait(Duration.ofHours(1))
        .withGrace(Duration.ofHours(1))
        .withSpill(SpillConfig.TO_HOST.withHostBytesMax(64 << 20));
  }

  private void run(MemoryConfig config, long seed, long most) {
    run(config, Map.of(), seed, most);
  }

  private void run(MemoryConfig config, Map<String, String> settings, long seed, long most) {
    try (TestDevice world = TestDevice.open(config, settings)) {
      Device device = world.device;
      AtomicInteger next = new AtomicInteger();
      try (TaskScope<Integer> scope = world.tasks.scope()) {
        for (int i = 0; i < AT_ONCE; i++) {
          scope.fork(
              eager("worker " + i).priority(i % 2),
              () -> {
                int done = 0;
                for (int n = next.getAndIncrement(); n < WORK; n = next.getAndIncrement()) {
                  long workSeed = 1_000_003 * seed + n;
                  done += retry(device, workSeed, most);
                }
                return done;
              });
        }
        assertThat(scope.join().stream().mapToInt(each -> each).sum()).isEqualTo(WORK);
      }
      world.awaitNothingLeft();
      device.trim().await();
      assertThat(device.memory().reserved()).as("reserved, seed %d", seed).isZero();
      MemoryStats.Waits waits = device.memory().waits();
      assertThat(waits.splits()).as("splits, seed %d", seed).isEqualTo(inTheirOwnWay.get());
      assertThat(waits.rollbacks())
          .as("rollbacks, seed %d", seed)
          .isLessThanOrEqualTo(allocations.get());
      needless.addAndGet(waits.needless());
    }
  }

  private int retry(Device device, long seed, long most) {
    try {
      return Oom.retry(device, () -> new Work(device, seed, most, allocations).run());
    } catch (OutOfDeviceMemoryException alone) {
      if (!mayBeInItsOwnWay || !alone.getMessage().contains("all that is in its way is its own")) {
        throw alone;
      }
      inTheirOwnWay.incrementAndGet();
      return 1;
    }
  }

  /** One piece: allocates, leases, holds, uses and closes, and never has more than fits. */
  private static final class Work {
    private final Device device;
    private final Random random;
    private final long most;
    private final AtomicLong allocations;
    private final List<DeviceBuffer> buffers = new ArrayList<>();
    private final List<AutoCloseable> keeps = new ArrayList<>();
    private long bytes;

    Work(Device device, long seed, long most, AtomicLong allocations) {
      this.device = device;
      this.random = new Random(seed);
      this.most = most;
      this.allocations = allocations;
    }

    int run() {
      try {
        int steps = 1 + random.nextInt(STEPS_MAX);
        for (int i = 0; i < steps; i++) {
          step();
        }
        return 1;
      } finally {
        keeps.forEach(Work::close);
        buffers.forEach(DeviceBuffer::close);
      }
    }

    private void step() {
      int kind = random.nextInt(10);
      if (kind < 5 || buffers.isEmpty()) {
        allocate();
      } else if (kind < 7) {
        buffers.get(random.nextInt(buffers.size())).fill((byte) kind);
      } else if (kind < 8) {
        keeps.add(buffers.get(random.nextInt(buffers.size())).hold());
      } else if (kind < 9) {
        keeps.add(buffers.get(random.nextInt(buffers.size())).lease(device.stream()));
      } else {
        endAll();
      }
    }

    private void allocate() {
      int size = 1 + random.nextInt((int) most / 4);
      if (bytes + Sizes.rounded(size) <= most) {
        allocations.incrementAndGet();
        buffers.add(device.allocate(size));
        bytes += Sizes.rounded(size);
      }
    }

    private void endAll() {
      keeps.forEach(Work::close);
      keeps.clear();
      DeviceBuffer last = buffers.removeLast();
      bytes -= Sizes.rounded(last.bytes());
      last.close();
    }

    private static void close(AutoCloseable keep) {
      try {
        keep.close();
      } catch (Exception e) {
        throw new AssertionError(e);
      }
    }
  }
}
