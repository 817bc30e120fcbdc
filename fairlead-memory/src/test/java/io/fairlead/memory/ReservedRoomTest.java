package io.fairlead.memory;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.OutOfDeviceMemoryException;
import io.fairlead.fault.Mutant;
import io.fairlead.task.Completion;
import io.fairlead.task.ForkOptions;
import io.fairlead.task.TaskScope;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.LongStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Reservations beside memory that nobody has reserved: who waits to reserve sends nothing below
 * that is in use, and neither what was promised nor what is below is out of reach.
 */
@Timeout(120)
class ReservedRoomTest {
  private static final int KIB = 1 << 10;
  private static final int LIMIT = 100 * KIB;
  private static final long HOUR = Duration.ofHours(1).toNanos();

  private final long graceBefore = Spiller.reserveGraceNanos;
  private TestDevice world;
  private Device device;

  @AfterEach
  void nothingIsLeft() {
    Spiller.reserveGraceNanos = graceBefore;
    if (device != null) {
      world.awaitNothingLeft();
      assertThat(device.memory().reserved()).as("reserved").isZero();
      assertThat(device.budget().hasWaiting()).as("somebody waits").isFalse();
      world.close();
    }
  }

  private void open(Duration wait) {
    world = TestDevice.open(config(wait));
    device = world.device;
  }

  private static MemoryConfig config(Duration wait) {
    return MemoryConfig.defaults()
        .withLimit(LIMIT)
        .withChunk(4096)
        .withWait(wait)
        .withSpill(SpillConfig.TO_HOST.withHostBytesMax(16 << 20));
  }

  private DeviceBuffer filled(int kib, int value) {
    DeviceBuffer buffer = device.allocate(kib * KIB);
    buffer.fill((byte) value);
    return buffer;
  }

  // --- who waits to reserve -----------------------------------------------------------------

  /** The device is full of what nobody uses just now. */
  private void waitToReserve() {
    open(Duration.ofMinutes(5));
    Spiller.reserveGraceNanos = HOUR;
    DeviceBuffer idle = filled(80, 1);
    device.context().reached().await();
    Completion<Reservation> waits = device.requestReservation(50 * KIB);
    try {
      for (int i = 0; i < 3; i++) {
        device.spiller().needed();
        device.spiller().awaitLook();
        assertThat(device.spiller().isBusy()).as("what leaves before the grace is over").isFalse();
      }
      assertThat(device.memory().spills()).isZero();
      assertThat(waits.isDone()).isFalse();
      Spiller.reserveGraceNanos = 0;
      while (!waits.isDone()) {
        device.spiller().needed();
        device.spiller().awaitLook();
      }
      assertThat(idle.tier()).isEqualTo(Tier.HOST);
    } finally {
      Spiller.reserveGraceNanos = 0;
      waits.await().close();
      assertThat(idle.toBytes()).containsOnly(1);
      idle.close();
    }
  }

  @Test
  void whatIsIdleStaysForATimeOfGraceAndLeavesThen() {
    waitToReserve();
  }

  @Test
  void whoDoesNotWaitForThatIsFound() {
    try (var _ = Mutant.enable("spill.reserve.eager")) {
      assertThatThrownBy(this::waitToReserve).isInstanceOf(AssertionError.class);
    }
  }

  /** It has been in use all the while, by one operation. */
  @Test
  void whatTheDeviceWorksOnStays() {
    Spiller.reserveGraceNanos = 0;
    world = TestDevice.stepped(config(Duration.ofMinutes(5)));
    device = world.device;
    DeviceBuffer worked = filled(80, 1);
    Completion<Reservation> waits = device.requestReservation(50 * KIB);
    for (int i = 0; i < 5; i++) {
      device.spiller().needed();
      device.spiller().awaitLook();
    }
    assertThat(device.spiller().isBusy()).as("no copy was begun").isFalse();
    assertThat(waits.isDone()).isFalse();
    worked.close();
    Completion<Void> end = device.context().reached();
    world.stepper().completeAll();
    end.await();
    waits.await().close();
  }

  /** A buffer that somebody lacks goes on with work, and is not made to wait for a grace. */
  @Test
  void whoAllocatesDoesNotWaitForThat() {
    open(Duration.ofMinutes(5));
    Spiller.reserveGraceNanos = HOUR;
    List<DeviceBuffer> buffers = new ArrayList<>();
    for (int i = 0; i < 4; i++) {
      buffers.add(filled(50, i));
    }
    for (int i = 0; i < 4; i++) {
      assertThat(buffers.get(i).toBytes()).containsOnly(i);
      buffers.get(i).close();
    }
  }

  // --- what was promised, and what is below -------------------------------------------------

  /** All of the device is promised, and then somebody needs what had to leave for it. */
  private void useWhatIsBelow() {
    open(Mutant.on("memory.lend.skip") ? Duration.ofMillis(200) : Duration.ofMinutes(5));
    DeviceBuffer shared = filled(40, 1);
    assertThat(shared.spill().await()).isEqualTo(Tier.HOST);
    device.context().reached().await();
    assertThat(device.memory().pendingFree()).isZero();
    world.tasks.enter(
        "reserves",
        0,
        () -> {
          try (Reservation all = device.reserve(LIMIT)) {
            elsewhere(() -> shared.fill((byte) 2));
            assertThat(all.free()).as("its promise").isEqualTo(LIMIT);
            assertThat(device.memory().inUse()).as("it is lent").isEqualTo(40 * KIB);
            elsewhere(() -> assertThat(device.tryReserve(KIB)).as("promised meanwhile").isEmpty());
            elsewhere(() -> device.reserve(0).close());
            // all of what was promised, while the other one is used, too
            List<DeviceBuffer> mine = new ArrayList<>();
            for (int i = 0; i < 5; i++) {
              byte value = (byte) (3 + i);
              mine.add(filled(20, 10 + i));
              elsewhere(() -> shared.fill(value));
            }
            for (int i = 0; i < 5; i++) {
              assertThat(mine.get(i).toBytes()).containsOnly(10 + i);
              mine.get(i).close();
            }
          }
          return 0;
        });
    assertThat(shared.toBytes()).containsOnly(7);
    shared.close();
  }

  /** In a task that draws on no reservation, on a thread that Fairlead did not make. */
  private static void elsewhere(Runnable body) {
    try (ExecutorService thread = Executors.newSingleThreadExecutor()) {
      Future<?> done = thread.submit(body);
      done.get();
    } catch (ExecutionException failure) {
      throw new IllegalStateException(failure.getCause());
    } catch (InterruptedException stop) {
      throw new AssertionError(stop);
    }
  }

  @Test
  void whatIsBelowComesBackIntoWhatIsPromised() {
    useWhatIsBelow();
  }

  @Test
  void withoutLendingItWouldNot() {
    try (var _ = Mutant.enable("memory.lend.skip")) {
      assertThatThrownBy(this::useWhatIsBelow)
          .hasRootCauseInstanceOf(OutOfDeviceMemoryException.class)
          .hasStackTraceContaining("nothing came back within 200 ms");
    }
    device.live().forEach(device::close);
  }

  /** Two that have promises and need the same third thing are no deadlock. */
  @Test
  void whoHasReservedDoesNotKeepOthersFromWhatTheyShare() {
    open(Duration.ofHours(1));
    DeviceBuffer shared = filled(60, 1);
    assertThat(shared.spill().await()).isEqualTo(Tier.HOST);
    device.context().reached().await();
    CyclicBarrier bothReserved = new CyclicBarrier(2);
    try (TaskScope<Long> scope = world.tasks.scope()) {
      for (String name : List.of("one", "two")) {
        scope.fork(
            ForkOptions.named(name).eager(true),
            () -> {
              try (Reservation half = device.reserve(LIMIT / 2)) {
                bothReserved.await();
                shared.fill((byte) 2);
                try (DeviceBuffer mine = filled(50, 3)) {
                  shared.fill((byte) 4);
                  assertThat(mine.toBytes()).containsOnly(3);
                }
                return half.bytes();
              }
            });
      }
      assertThat(scope.join()).hasSize(2);
    }
    assertThat(shared.toBytes()).containsOnly(4);
    assertThat(device.memory().waits().rollbacks()).as("rollbacks").isZero();
    shared.close();
  }

  // --- many jobs ----------------------------------------------------------------------------

  static LongStream seeds() {
    return LongStream.rangeClosed(71, Boolean.getBoolean("fairlead.long") ? 100 : 74);
  }

  /**
   * Jobs as of a solver: each reserves what it will allocate, and all of them use what the solver
   * holds and nobody has reserved. Whatever they do just then, it is sent below for who waits.
   */
  @ParameterizedTest
  @MethodSource("seeds")
  void jobsThatReserveShareWhatNobodyReserved(long seed) {
    Spiller.reserveGraceNanos = 0;
    open(Duration.ofMinutes(5));
    runJobs(seed);
  }

  /** As it is: what the jobs use all the while stays where it is. */
  @ParameterizedTest
  @ValueSource(longs = {81, 82})
  void soItIsWithTheGrace(long seed) {
    open(Duration.ofMinutes(5));
    runJobs(seed);
  }

  /** As the device has no byte more than the limit, room lies in pieces, too. */
  @ParameterizedTest
  @EnumSource
  void soItIsWhereTheDriverHasNoMore(MemoryPool pool) {
    Spiller.reserveGraceNanos = 0;
    for (long seed = 91; seed <= 93; seed++) {
      world =
          TestDevice.open(
              config(Duration.ofMinutes(5)).withPool(pool),
              Map.of("memory", Integer.toString(LIMIT)));
      device = world.device;
      runJobs(seed);
      nothingIsLeft();
      device = null;
    }
  }

  private void runJobs(long seed) {
    List<DeviceBuffer> matrices = new ArrayList<>();
    for (int i = 0; i < 4; i++) {
      matrices.add(filled(12, i));
    }
    try (TaskScope<Integer> scope = world.tasks.scope()) {
      for (int i = 0; i < 24; i++) {
        Random random = new Random(1_000_003 * seed + i);
        scope.fork(() -> job(random, matrices, seed));
      }
      assertThat(scope.join()).hasSize(24);
    }
    for (int i = 0; i < 4; i++) {
      assertThat(matrices.get(i).toBytes()).as("seed %d", seed).containsOnly(i);
      matrices.get(i).close();
    }
    assertThat(device.memory().peak()).isLessThanOrEqualTo(LIMIT);
  }

  private int job(Random random, List<DeviceBuffer> matrices, long seed) {
    int[] sizes = random.ints(1 + random.nextInt(4), 1, 20 * KIB).toArray();
    long bytes = Arrays.stream(sizes).mapToLong(Sizes::rounded).sum();
    try (Reservation reservation = device.reserve(bytes)) {
      List<DeviceBuffer> mine = new ArrayList<>();
      for (int size : sizes) {
        mine.add(device.allocate(size));
        for (int round = 0; round < 4; round++) {
          int which = random.nextInt(matrices.size());
          DeviceBuffer matrix = matrices.get(which);
          DeviceBuffer target = mine.get(random.nextInt(mine.size()));
          long common = Math.min(target.bytes(), matrix.bytes());
          target.copyFrom(0, matrix, 0, common);
          if (random.nextInt(3) == 0) {
            assertThat(target.slice(0, common).toBytes()).as("seed %d", seed).containsOnly(which);
          }
        }
      }
      mine.forEach(DeviceBuffer::close);
      return (int) reservation.bytes();
    }
  }
}
