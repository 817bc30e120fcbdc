package io.fairlead.memory;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.fault.DeadlineExceededException;
import io.fairlead.fault.TaskCancelledException;
import io.fairlead.fault.TaskInterruptedException;
import io.fairlead.task.Fork;
import io.fairlead.task.ForkOptions;
import io.fairlead.task.ScopeOptions;
import io.fairlead.task.ScopePolicy;
import io.fairlead.task.TaskBody;
import io.fairlead.task.TaskScope;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * A task that waits for memory is interrupted, cancelled, or runs into its deadline, at each place
 * where one can wait: it is told so, and nothing of its request is left.
 */
@Timeout(60)
class StoppedWaitTest {
  private static final int KIB = 1 << 10;
  private static final int LIMIT = 100 * KIB;

  /** Long enough to get to the wait on most machines; where it is not, nothing is shown. */
  private static final Duration DEADLINE = Duration.ofMillis(300);

  private final TestDevice world =
      TestDevice.open(
          MemoryConfig.defaults()
              .withLimit(LIMIT)
              .withChunk(4096)
              .withWait(Duration.ofHours(1))
              .withGrace(Duration.ofHours(1))
              .withSpill(SpillConfig.TO_HOST.withHostBytesMax(16 << 20)),
          Map.of("memory", Integer.toString(LIMIT)));

  private final Device device = world.device;
  private final Returns turn = device.returns();

  private enum Stop {
    INTERRUPT(TaskInterruptedException.class),
    CANCEL(TaskCancelledException.class),
    DEADLINE(DeadlineExceededException.class);

    private final Class<? extends Throwable> told;

    Stop(Class<? extends Throwable> told) {
      this.told = told;
    }
  }

  @AfterEach
  void nothingIsLeft() {
    world.awaitRetired(); // who was stopped leaves it to the owner to free what he had
    world.awaitNothingInUse();
    device.trim().await();
    assertThat(device.memory().reserved()).as("reserved").isZero();
    assertThat(turn.isTaken()).as("the turn is taken").isFalse();
    assertThat(turn.isWaitedFor()).as("somebody waits for the turn").isFalse();
    assertThat(device.budget().hasWaiting()).as("somebody waits").isFalse();
    try (DeviceBuffer all = device.allocate(LIMIT)) {
      all.fill((byte) 1);
    }
    world.close();
  }

  // --- for room -----------------------------------------------------------------------------

  @ParameterizedTest
  @EnumSource
  void whoAllocates(Stop how) {
    try (DeviceBuffer held = device.allocate(60 * KIB);
        Hold hold = held.hold()) {
      stopped(how, this::allocateMost, this::isWaitedForRoom);
      assertThat(hold).isNotNull();
    }
  }

  @ParameterizedTest
  @EnumSource
  void whoReserves(Stop how) {
    try (DeviceBuffer held = device.allocate(60 * KIB);
        Hold hold = held.hold()) {
      stopped(how, this::reserveMost, this::isWaitedForRoom);
      assertThat(hold).isNotNull();
    }
  }

  @ParameterizedTest
  @EnumSource
  void whoReservesAndHasMemory(Stop how) {
    try (DeviceBuffer held = device.allocate(60 * KIB);
        Hold hold = held.hold()) {
      stopped(
          how,
          () -> {
            try (DeviceBuffer own = device.allocate(10 * KIB)) {
              return reserveMost() + own.bytes();
            }
          },
          this::isWaitedForRoom);
      assertThat(hold).isNotNull();
    }
  }

  private long allocateMost() {
    try (DeviceBuffer most = device.allocate(60 * KIB)) {
      return most.bytes();
    }
  }

  private long reserveMost() {
    try (Reservation most = device.reserve(60 * KIB)) {
      return most.bytes();
    }
  }

  private boolean isWaitedForRoom() {
    return device.budget().waitingCount() > 0;
  }

  // --- to bring back ------------------------------------------------------------------------

  @ParameterizedTest
  @EnumSource
  void whoWaitsForTheTurn(Stop how) {
    try (DeviceBuffer below = below()) {
      turn.takeTurn(1, true);
      try {
        stopped(how, () -> use(below), turn::isWaitedFor);
      } finally {
        turn.leaveTurn();
      }
      assertThat(below.tier()).isEqualTo(Tier.HOST);
      assertThat(below.toBytes()).containsOnly(7);
    }
  }

  @ParameterizedTest
  @EnumSource
  void whoBringsBack(Stop how) {
    try (DeviceBuffer below = below()) {
      try (DeviceBuffer held = device.allocate(60 * KIB);
          Hold hold = held.hold()) {
        stopped(how, () -> use(below), this::isWaitedForRoom);
        assertThat(hold).isNotNull();
        assertThat(turn.isTaken()).isFalse();
      }
      assertThat(below.toBytes()).containsOnly(7);
    }
  }

  private DeviceBuffer below() {
    DeviceBuffer buffer = device.allocate(60 * KIB);
    buffer.fill((byte) 7);
    buffer.spill().await();
    device.context().reached().await();
    return buffer;
  }

  private long use(DeviceBuffer below) {
    below.fill((byte) 8);
    return below.bytes();
  }

  // --- for a block --------------------------------------------------------------------------

  /** Pieces of 20 of which those between are held: there are 60 free, and no block of that size. */
  private void inPieces(Runnable then) {
    List<DeviceBuffer> pieces = new ArrayList<>();
    for (int i = 0; i < 5; i++) {
      pieces.add(device.allocate(20 * KIB));
    }
    try (Hold one = pieces.get(1).hold();
        Hold two = pieces.get(3).hold()) {
      pieces.get(0).close();
      pieces.get(2).close();
      pieces.get(4).close();
      device.context().reached().await();
      then.run();
      assertThat(one).isNotSameAs(two);
    } finally {
      pieces.forEach(DeviceBuffer::close);
    }
  }

  @ParameterizedTest
  @EnumSource
  void whoHasTheTurnForABlock(Stop how) {
    inPieces(() -> stopped(how, this::allocateMost, () -> turn.isTaken() && isWaitedForRoom()));
  }

  @ParameterizedTest
  @EnumSource
  void whoWaitsForTheTurnForABlock(Stop how) {
    inPieces(
        () -> {
          turn.takeTurn(1, true);
          try {
            stopped(how, this::allocateMost, turn::isWaitedFor);
          } finally {
            turn.leaveTurn();
          }
        });
  }

  @ParameterizedTest
  @EnumSource
  void whoHasTheTurnToBringBackAndNoBlock(Stop how) {
    try (DeviceBuffer below = below()) {
      inPieces(() -> stopped(how, () -> use(below), () -> turn.isTaken() && isWaitedForRoom()));
      assertThat(below.toBytes()).containsOnly(7);
    }
  }

  /** For a second others may end what they do; then he takes the turn. */
  @ParameterizedTest
  @EnumSource
  void whoHasReservedAndHasNoBlock(Stop how) {
    CountDownLatch reserved = new CountDownLatch(1);
    inPieces(
        () ->
            stopped(
                how,
                () -> {
                  try (Reservation _ = device.reserve(60 * KIB)) {
                    reserved.countDown();
                    return allocateMost();
                  }
                },
                () -> reserved.getCount() == 0));
  }

  // --- to begin again -----------------------------------------------------------------------

  /** The older try goes on with what the younger one had, and keeps it. */
  @ParameterizedTest
  @EnumSource
  void whoBeginsAgain(Stop how) {
    CountDownLatch mayEnd = new CountDownLatch(1);
    CountDownLatch olderHolds = new CountDownLatch(1);
    CountDownLatch olderHasAll = new CountDownLatch(1);
    try (TaskScope<Long> scope = world.tasks.scope()) {
      scope.fork(
          eager("older"),
          () ->
              Oom.retry(
                  device,
                  () -> {
                    try (DeviceBuffer own = device.allocate(40 * KIB);
                        Hold hold = own.hold()) {
                      olderHolds.countDown();
                      spinUntil(this::isWaitedForRoom);
                      try (DeviceBuffer more = device.allocate(40 * KIB);
                          Hold _ = more.hold()) {
                        olderHasAll.countDown();
                        awaitQuietly(mayEnd);
                        return hold == null ? 0 : more.bytes();
                      }
                    }
                  }));
      awaitQuietly(olderHolds);
      stopped(
          how,
          () ->
              Oom.retry(
                  device,
                  () -> {
                    try (DeviceBuffer own = device.allocate(40 * KIB);
                        Hold hold = own.hold();
                        DeviceBuffer more = device.allocate(40 * KIB)) {
                      return hold == null ? 0 : more.bytes();
                    }
                  }),
          () -> olderHasAll.getCount() == 0 && isWaitedForRoom());
      awaitQuietlyUnless(olderHasAll);
      mayEnd.countDown();
      scope.join();
    }
  }

  /** Where the deadline came too early, the older one waits for nobody. */
  private void awaitQuietlyUnless(CountDownLatch olderHasAll) {
    if (olderHasAll.getCount() > 0) {
      try (DeviceBuffer held = device.allocate(40 * KIB);
          Hold _ = held.hold();
          TaskScope<Long> scope = world.tasks.scope()) {
        Fork<Long> waits = scope.fork(eager("waits"), this::allocateMost);
        spinUntil(() -> isWaitedForRoom() || olderHasAll.getCount() == 0);
        waits.task().cancel(null);
      }
    }
  }

  // --- how ----------------------------------------------------------------------------------

  private void stopped(Stop how, TaskBody<Long> body, BooleanSupplier waits) {
    Throwable told;
    try (TaskScope<Long> scope = world.tasks.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
      ForkOptions options = eager("stopped");
      Fork<Long> fork =
          scope.fork(how == Stop.DEADLINE ? options.deadline(DEADLINE) : options, body);
      spinUntil(() -> waits.getAsBoolean() || fork.state() != Fork.State.RUNNING);
      switch (how) {
        case INTERRUPT -> fork.task().interrupt();
        case CANCEL -> fork.task().cancel(null);
        case DEADLINE -> {} // comes
      }
      scope.join();
      told = fork.failure();
    }
    assertThat(told).isInstanceOf(how.told);
    assertThat(device.budget().hasWaiting()).as("a request of who was stopped").isFalse();
  }

  private static ForkOptions eager(String name) {
    return ForkOptions.named(name).eager(true);
  }

  private static void spinUntil(BooleanSupplier holds) {
    while (!holds.getAsBoolean()) {
      LockSupport.parkNanos(50_000);
    }
  }

  private static void awaitQuietly(CountDownLatch latch) {
    try {
      latch.await();
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
  }
}
