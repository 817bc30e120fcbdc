package io.fairlead.memory;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.OutOfDeviceMemoryException;
import io.fairlead.fault.Mutant;
import io.fairlead.task.ForkOptions;
import io.fairlead.task.TaskScope;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Others have taken of the device what the limit lets us have, and very many tasks want it. */
@Timeout(60)
class DriverHasLessTest {
  private static final int SHARES = 22;
  private static final long SHARE = 1 << 20;
  private static final long LIMIT = SHARES * SHARE;
  private static final int CROWD = 300;

  private TestDevice world;
  private Device device;
  private Returns turn;
  private Foreigners others;

  @BeforeEach
  void open() {
    open(Duration.ofHours(1));
  }

  private void open(Duration wait) {
    MemoryConfig config =
        MemoryConfig.defaults()
            .withLimit(LIMIT)
            .withWait(wait)
            .withGrace(Duration.ofHours(1))
            .withSpill(SpillConfig.TO_HOST.withHostBytesMax(8 * LIMIT));
    world = TestDevice.open(config, Map.of("memory", Long.toString(LIMIT), "poison", "false"));
    device = world.device;
    turn = device.returns();
    others = new Foreigners(world, SHARE / 16);
  }

  @AfterEach
  void close() {
    world.awaitRetired();
    world.awaitNothingInUse();
    assertThat(device.budget().hasWaiting()).as("somebody waits").isFalse();
    assertThat(turn.isTaken()).as("the turn is taken").isFalse();
    others.close();
    world.close();
  }

  /** Each keeps a share and wants another one; the driver has six. */
  @Test
  void manyEndWithoutGivingWay() {
    CountDownLatch taken = new CountDownLatch(1);
    CountDownLatch allWait = new CountDownLatch(1);
    try (TaskScope<Long> scope = world.tasks.scope()) {
      scope.fork(
          eager("promised"),
          () -> {
            try (Reservation all = device.reserve(LIMIT)) {
              taken.countDown();
              allWait.await();
              return all.bytes();
            }
          });
      awaitUntil(() -> taken.getCount() == 0);
      others.take(16 * 16);
      for (int i = 0; i < CROWD; i++) {
        scope.fork(eager("one of many"), () -> Oom.retry(device, this::keepAndWant));
      }
      awaitUntil(() -> device.budget().waitingCount() == CROWD);
      allWait.countDown();
      assertThat(scope.join()).hasSize(CROWD + 1);
    }
    // some have to, since so few fit together; before, all of them did, one after the other
    assertThat(device.memory().waits().rollbacks()).as("rollbacks").isLessThan(CROWD / 3);
  }

  private long keepAndWant() {
    try (DeviceBuffer own = device.allocate(SHARE);
        Hold hold = own.hold();
        DeviceBuffer other = device.allocate(SHARE)) {
      other.fill((byte) 1);
      return hold == null ? 0 : other.bytes();
    }
  }

  // --- whose turn it is -------------------------------------------------------------------------

  /** In which order those get the turn who wait for it in this one. */
  private List<Boolean> order(boolean... goesOn) {
    List<Boolean> order = Collections.synchronizedList(new ArrayList<>());
    turn.takeTurn(1, true);
    try (TaskScope<Integer> scope = world.tasks.scope()) {
      for (int i = 0; i < goesOn.length; i++) {
        boolean its = goesOn[i];
        int before = i;
        awaitUntil(() -> turn.waiting().size() == before);
        scope.fork(
            eager("waits"),
            () -> {
              turn.takeTurn(1, its);
              order.add(its);
              turn.leaveTurn();
              return 1;
            });
      }
      awaitUntil(() -> turn.waiting().size() == goesOn.length);
      turn.leaveTurn();
      scope.join();
    }
    return order;
  }

  @Test
  void whoGoesOnHasTheTurnBeforeWhoBegins() {
    assertThat(order(false, false, true)).containsExactly(true, false, false);
  }

  @Test
  void turnsInTheOrderOfComingAreFound() {
    try (var _ = Mutant.enable("returns.turn.in-order")) {
      assertThat(order(false, false, true)).containsExactly(false, false, true);
    }
  }

  /** What is brought back has no end. */
  @Test
  void whoBeginsIsNotPassedForEver() {
    boolean[] goesOn = new boolean[Budget.OVERTAKEN_MAX + 5];
    for (int i = 1; i < goesOn.length; i++) {
      goesOn[i] = true;
    }
    assertThat(order(goesOn).indexOf(false)).isEqualTo(Budget.OVERTAKEN_MAX);
  }

  // --- who is held back -------------------------------------------------------------------------

  /**
   * One makes room for a block; what it waits for is kept by a task that joins a child, which wants
   * to begin.
   */
  private void whoMakesRoomWaitsForOneThatIsHeldBack() {
    CountDownLatch keeps = new CountDownLatch(1);
    others.take(10 * 16);
    try (TaskScope<Long> scope = world.tasks.scope()) {
      scope.fork(
          eager("keeps"),
          () -> {
            try (DeviceBuffer own = device.allocate(10 * SHARE);
                Hold hold = own.hold()) {
              keeps.countDown();
              awaitUntil(turn::isTaken);
              return joinOneThatBegins(hold);
            }
          });
      awaitUntil(() -> keeps.getCount() == 0);
      scope.fork(
          eager("makes room"),
          () -> {
            try (DeviceBuffer large = device.allocate(5 * SHARE)) {
              return large.bytes();
            }
          });
      scope.join();
    }
  }

  private long joinOneThatBegins(Hold hold) {
    try (TaskScope<Long> inner = world.tasks.scope()) {
      inner.fork(
          eager("begins"),
          () -> {
            try (Reservation some = device.reserve(SHARE / 4)) {
              return some.bytes();
            }
          });
      return hold == null ? 0 : inner.join().size();
    }
  }

  @Test
  void whoIsWaitedForBeginsAllTheSame() {
    whoMakesRoomWaitsForOneThatIsHeldBack();
  }

  @Test
  void aLadderThatLeavesHimHeldBackIsFound() {
    close();
    open(Duration.ofMillis(400));
    try (var _ = Mutant.enable("oom.held-back.skip")) {
      assertThatThrownBy(this::whoMakesRoomWaitsForOneThatIsHeldBack)
          .isInstanceOf(OutOfDeviceMemoryException.class);
    }
  }

  private static ForkOptions eager(String name) {
    return ForkOptions.named(name).eager(true);
  }

  private static void awaitUntil(BooleanSupplier condition) {
    while (!condition.getAsBoolean()) {
      LockSupport.parkNanos(100_000);
    }
  }
}
