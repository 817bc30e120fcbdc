package io.fairlead.memory;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.DeviceGraph;
import io.fairlead.device.OutOfDeviceMemoryException;
import io.fairlead.fault.Mutant;
import io.fairlead.task.Completion;
import io.fairlead.task.Engine;
import io.fairlead.task.EngineLimits;
import io.fairlead.task.Fork;
import io.fairlead.task.ForkOptions;
import io.fairlead.task.ScopeOptions;
import io.fairlead.task.ScopePolicy;
import io.fairlead.task.TaskScope;
import io.fairlead.task.ThreadRule;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BrokenBarrierException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import java.util.stream.Stream;
import org.assertj.core.api.InstanceOfAssertFactories;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What becomes of tasks that wait for memory which the others keep. */
@Timeout(60)
class OomTest {
  private static final int KIB = 1 << 10;
  private static final long LIMIT = 100 * KIB;

  /** So long that whoever is told only by the time limit fails the test by its timeout. */
  private static final Duration NEVER = Duration.ofHours(1);

  private final long graceBefore = Ladder.graceNanos;
  private final TestDevice world = TestDevice.open(config());
  private final Device device = world.device;

  private static MemoryConfig config() {
    return MemoryConfig.defaults()
        .withLimit(LIMIT)
        .withWait(NEVER)
        .withGrace(NEVER)
        .withCreationSites(CreationSites.ALL)
        .withSpill(SpillConfig.TO_HOST.withHostBytesMax(16 << 20));
  }

  @AfterEach
  void nothingIsLeft() {
    Ladder.graceNanos = graceBefore;
    world.awaitRetired(); // the owner destroys graphs, and frees for who was cancelled
    world.awaitNothingInUse();
    device.trim().await();
    assertThat(device.memory().reserved()).as("reserved").isZero();
    assertThat(device.budget().hasWaiting()).as("somebody waits").isFalse();
    world.close();
  }

  @Test
  void twoTasksThatLeaseAndWantMoreAreTold() {
    CyclicBarrier bothLease = new CyclicBarrier(2);
    List<Throwable> failures = new ArrayList<>();
    try (TaskScope<Boolean> scope = collecting()) {
      Fork<Boolean> one = scope.fork(eager("one"), () -> leaseAndWant(40, 40, bothLease));
      Fork<Boolean> two = scope.fork(eager("two"), () -> leaseAndWant(40, 40, bothLease));
      scope.join();
      for (Fork<Boolean> each : List.of(one, two)) {
        if (each.state() == Fork.State.FAILED) {
          failures.add(each.failure());
        }
      }
    }

    assertThat(failures)
        .singleElement()
        .isInstanceOf(OutOfDeviceMemoryException.class)
        .extracting(Throwable::getMessage)
        .asString()
        .contains("wait for memory themselves")
        .contains("task 'one' waits for 40.0 KiB (40960 bytes) on device 0, and keeps 40.0 KiB")
        .contains("task 'two' waits for 40.0 KiB (40960 bytes) on device 0, and keeps 40.0 KiB")
        .contains(", leased")
        .contains("OomTest");
  }

  @Test
  void aChildThatWantsWhatItsParentLeasesIsTold() {
    assertThatThrownBy(
            () ->
                world.tasks.enter(
                    "parent",
                    0,
                    () -> {
                      try (DeviceBuffer buffer = device.allocate(60 * KIB);
                          Lease lease = buffer.lease(device.stream());
                          TaskScope<Long> scope = world.tasks.scope()) {
                        scope.fork(eager("child"), () -> allocateAndClose(60));
                        return scope.join().size() + lease.bytes();
                      }
                    }))
        .isInstanceOf(OutOfDeviceMemoryException.class)
        .hasMessageContaining("task 'child' waits for 60.0 KiB")
        .hasMessageContaining("task 'parent' waits for the children of scope 'scope'");
  }

  @Test
  void soItIsThroughGrandchildrenAndChildrenInPlace() {
    assertThatThrownBy(
            () ->
                world.tasks.enter(
                    "parent",
                    0,
                    () -> {
                      try (DeviceBuffer buffer = device.allocate(60 * KIB);
                          Hold hold = buffer.hold();
                          TaskScope<Long> scope = world.tasks.scope()) {
                        scope.fork(
                            () -> {
                              try (TaskScope<Long> inner = world.tasks.scope()) {
                                inner.fork(() -> allocateAndClose(60));
                                return inner.join().getFirst();
                              }
                            });
                        assertThat(hold).isNotNull();
                        return scope.join();
                      }
                    }))
        .isInstanceOf(OutOfDeviceMemoryException.class)
        .hasMessageContaining("wait for memory themselves");
  }

  @Test
  void aCircleThroughAnEngineIsTold() throws Exception {
    Engine<Integer> engine =
        world.tasks.engine("library", ThreadRule.ONE_AT_A_TIME, () -> 1, EngineLimits.of(1));
    CountDownLatch leased = new CountDownLatch(1);
    CountDownLatch inCall = new CountDownLatch(1);
    try (TaskScope<Long> scope = collecting()) {
      Fork<Long> leases =
          scope.fork(
              eager("leases"),
              () -> {
                try (DeviceBuffer buffer = device.allocate(60 * KIB);
                    Lease lease = buffer.lease(device.stream())) {
                  leased.countDown();
                  inCall.await();
                  return engine.call(0, one -> one + lease.bytes());
                }
              });
      Fork<Long> calls =
          scope.fork(
              eager("calls"),
              () -> {
                leased.await();
                return engine.call(
                    0,
                    one -> {
                      inCall.countDown();
                      return allocateAndClose(60);
                    });
              });
      scope.join();
      assertThat(leases.state()).isEqualTo(Fork.State.SUCCEEDED);
      assertThat(calls.failure())
          .isInstanceOf(OutOfDeviceMemoryException.class)
          .hasMessageContaining("task 'leases' waits for an instance of engine 'library'");
    }
  }

  @Test
  void theTurnOfReturnsIsPartOfTheGraph() {
    assertThat(returnsThatWaitForEachOther(config()))
        .isInstanceOf(OutOfDeviceMemoryException.class)
        .hasMessageContaining("wait for memory themselves");
  }

  /**
   * Two lease, and each has the device bring something back: one has the turn, one waits for it.
   */
  private static Throwable returnsThatWaitForEachOther(MemoryConfig config) {
    CyclicBarrier bothLease = new CyclicBarrier(2);
    try (TestDevice own = TestDevice.open(config);
        TaskScope<Long> scope = own.tasks.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
      Device device = own.device;
      List<Fork<Long>> forks = new ArrayList<>();
      for (String name : List.of("one", "two")) {
        forks.add(
            scope.fork(
                eager(name),
                () -> {
                  try (DeviceBuffer below = device.allocate(40 * KIB)) {
                    below.fill((byte) 1);
                    below.spill().await();
                    try (DeviceBuffer leased = device.allocate(40 * KIB);
                        Lease lease = leased.lease(device.stream())) {
                      bothLease.await();
                      below.fill((byte) 2);
                      return lease.bytes();
                    }
                  }
                }));
      }
      scope.join();
      List<Fork<Long>> failed =
          forks.stream().filter(each -> each.state() == Fork.State.FAILED).toList();
      assertThat(failed).hasSize(1);
      Throwable failure = failed.getFirst().failure();
      if (Mutant.on("oom.turn.skip") && failure instanceof RuntimeException why) {
        throw why;
      }
      return failure;
    }
  }

  /** A graph keeps what it uses on the device: until who captured it, or has it now, closes it. */
  @Test
  void aGraphThatItsTaskHoldsIsPartOfTheGraph() {
    try (TestDevice own = TestDevice.open(config().withGrace(Duration.ZERO))) {
      Device device = own.device;
      Ladder.graceNanos = 0;
      assertThatThrownBy(
              () ->
                  own.tasks.enter(
                      "captures",
                      0,
                      () -> {
                        try (DeviceBuffer buffer = device.allocate(60 * KIB);
                            DeviceGraph graph = device.capture("fill", _ -> buffer.fill((byte) 1));
                            TaskScope<Long> scope = own.tasks.scope()) {
                          scope.fork(
                              eager("child"),
                              () -> {
                                try (DeviceBuffer more = device.allocate(60 * KIB)) {
                                  return more.bytes();
                                }
                              });
                          graph.launch();
                          return scope.join();
                        }
                      }))
          .isInstanceOf(OutOfDeviceMemoryException.class)
          .hasMessageContaining("nothing else can be spilled")
          .hasMessageContaining("task 'captures' waits for the children of scope 'scope'");
    }
  }

  @Test
  void aTryWhoseGraphIsInTheWayGivesWayAtOnce() {
    AtomicInteger runs = new AtomicInteger();
    List<Long> parts =
        world.tasks.enter(
            "captures",
            0,
            () ->
                Oom.splitAndRetry(
                    device,
                    60,
                    OomTest::halves,
                    kib -> {
                      runs.incrementAndGet();
                      try (DeviceBuffer buffer = device.allocate(kib * KIB);
                          DeviceGraph graph = device.capture("fill", _ -> buffer.fill((byte) 1))) {
                        graph.launch();
                        return allocateAndClose(kib);
                      }
                    }));
    assertThat(parts).containsExactly(30L * KIB, 30L * KIB);
    assertThat(runs).hasValue(3);
  }

  private static List<Integer> halves(int whole) {
    return List.of(whole / 2, whole - whole / 2);
  }

  /** What one device has granted to an operation is kept while it waits for another device. */
  @Test
  void whatAnOperationKeepsOnAnotherDeviceIsPartOfTheGraph() {
    try (TestDevice own = TestDevice.open(config(), Map.of("devices", "2"));
        TaskScope<Long> scope = own.tasks.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
      Device first = own.device;
      Device second = own.devices.get(1);
      CountDownLatch bothBelow = new CountDownLatch(1);
      CountDownLatch leased = new CountDownLatch(1);
      Fork<Long> leases =
          scope.fork(
              eager("leases"),
              () -> {
                bothBelow.await();
                try (DeviceBuffer buffer = second.allocate(60 * KIB);
                    Lease lease = buffer.lease(second.stream())) {
                  leased.countDown();
                  spinUntil(() -> second.budget().waitingCount() > 0);
                  try (DeviceBuffer more = first.allocate(60 * KIB)) {
                    return more.bytes() + lease.bytes();
                  }
                }
              });
      Fork<Long> copies =
          scope.fork(
              eager("copies"),
              () -> {
                try (DeviceBuffer here = below(first);
                    DeviceBuffer there = below(second)) {
                  bothBelow.countDown();
                  leased.await();
                  here.copyFrom(there);
                  return here.bytes();
                }
              });
      scope.join();
      assertThat(Stream.of(leases, copies).filter(each -> each.failure() != null))
          .singleElement()
          .extracting(Fork::failure)
          .asInstanceOf(InstanceOfAssertFactories.THROWABLE)
          .isInstanceOf(OutOfDeviceMemoryException.class)
          .hasMessageContaining("wait for memory themselves");
    }
  }

  /** Who has nothing but a reservation there, and begins here. */
  private void reserveThereAndWaitHere(MemoryConfig config) {
    try (TestDevice own = TestDevice.open(config, Map.of("devices", "2"));
        TaskScope<Long> scope = own.tasks.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
      Device here = own.device;
      Device there = own.devices.get(1);
      CyclicBarrier bothKeep = new CyclicBarrier(2);
      Fork<Long> reserves =
          scope.fork(
              eager("reserves"),
              () -> {
                try (Reservation reservation = there.reserve(60 * KIB)) {
                  bothKeep.await();
                  try (DeviceBuffer buffer = here.allocate(60 * KIB)) {
                    return buffer.bytes() + reservation.bytes();
                  }
                }
              });
      Fork<Long> leases =
          scope.fork(
              eager("leases"),
              () -> {
                try (DeviceBuffer buffer = here.allocate(60 * KIB);
                    Lease lease = buffer.lease(here.stream())) {
                  bothKeep.await();
                  try (DeviceBuffer more = there.allocate(60 * KIB)) {
                    return more.bytes() + lease.bytes();
                  }
                }
              });
      scope.join();
      assertThat(Stream.of(reserves, leases).filter(each -> each.failure() != null))
          .singleElement()
          .extracting(Fork::failure)
          .asInstanceOf(InstanceOfAssertFactories.THROWABLE)
          .isInstanceOf(OutOfDeviceMemoryException.class)
          .hasMessageContaining("wait for memory themselves");
    }
  }

  @Test
  void whoHasOnlyAReservationOnAnotherDeviceIsPartOfTheGraph() {
    reserveThereAndWaitHere(config());
  }

  @Test
  void whoForgetsReservationsOnOtherDevicesIsFound() {
    try (var _ = Mutant.enable("oom.reserved.kept-by-nobody")) {
      assertThatThrownBy(() -> reserveThereAndWaitHere(config().withWait(Duration.ofMillis(200))))
          .isInstanceOf(AssertionError.class);
    }
  }

  private static DeviceBuffer below(Device device) {
    DeviceBuffer buffer = device.allocate(60 * KIB);
    buffer.fill((byte) 1);
    buffer.spill().await();
    return buffer;
  }

  /** The first who waits to begin waits for who is behind him: that one is let pass. */
  @Test
  void whoIsWaitedForDoesNotStandBehindWhoWaitsForHim() throws InterruptedException {
    CountDownLatch holds = new CountDownLatch(1);
    CountDownLatch waits = new CountDownLatch(1);
    try (TaskScope<Long> scope = world.tasks.scope()) {
      scope.fork(
          eager("parent"),
          () -> {
            try (DeviceBuffer buffer = device.allocate(60 * KIB);
                Hold hold = buffer.hold();
                TaskScope<Long> inner = world.tasks.scope()) {
              holds.countDown();
              waits.await();
              inner.fork(eager("child"), () -> reserveAndEnd(30));
              return hold == null ? 0L : inner.join().getFirst();
            }
          });
      holds.await();
      scope.fork(eager("large"), () -> reserveAndEnd(50));
      awaitWaiting(1);
      waits.countDown();
      assertThat(scope.join()).containsExactly(30L * KIB, 50L * KIB);
    }
  }

  /** Others who begin keep their places. */
  @Test
  void whoIsWaitedForByNobodyInItsWayKeepsItsPlace() throws InterruptedException {
    CountDownLatch mayEnd = new CountDownLatch(1);
    CountDownLatch holds = new CountDownLatch(1);
    try (TaskScope<Long> scope = world.tasks.scope()) {
      scope.fork(
          eager("holder"),
          () -> {
            try (DeviceBuffer buffer = device.allocate(60 * KIB);
                Hold hold = buffer.hold()) {
              holds.countDown();
              mayEnd.await();
              return hold == null ? 0 : buffer.bytes();
            }
          });
      holds.await();
      scope.fork(eager("large"), () -> reserveAndEnd(50));
      awaitWaiting(1);
      scope.fork(eager("small"), () -> reserveAndEnd(30));
      awaitWaiting(2);
      Ladder.awaitLook();
      assertThat(device.budget().waitingCount()).isEqualTo(2);
      mayEnd.countDown();
      assertThat(scope.join()).containsExactly(60L * KIB, 50L * KIB, 30L * KIB);
    }
  }

  private long reserveAndEnd(int kib) {
    try (Reservation reservation = device.reserve(kib * KIB)) {
      return reservation.bytes();
    }
  }

  // --- false alarms -------------------------------------------------------------------------

  @Test
  void aHolderThatRunsIsWaitedFor() {
    AtomicBoolean mayEnd = new AtomicBoolean();
    waitsFor(() -> spinUntil(mayEnd::get), () -> mayEnd.set(true));
  }

  @Test
  void aHolderThatWaitsForALockIsWaitedFor() {
    CountDownLatch mayEnd = new CountDownLatch(1);
    waitsFor(mayEnd::await, mayEnd::countDown);
  }

  @Test
  void aHolderThatWaitsForAMessageIsWaitedFor() {
    Completion.Source<Boolean> message = Completion.source();
    waitsFor(() -> message.completion().await(), () -> message.complete(true));
  }

  /** Who takes it waits for memory; another one has the lease, and does something else. */
  @Test
  void aLeaseThatWasHandedOnIsWaitedFor() throws InterruptedException {
    CountDownLatch mayEnd = new CountDownLatch(1);
    Completion.Source<Lease> handedOn = Completion.source();
    try (TaskScope<Long> scope = world.tasks.scope()) {
      Fork<Long> takes =
          scope.fork(
              eager("takes"),
              () -> {
                try (DeviceBuffer buffer = device.allocate(60 * KIB)) {
                  Lease lease = buffer.lease(device.stream());
                  lease.handOn();
                  handedOn.complete(lease);
                  return allocateAndClose(60);
                }
              });
      scope.fork(
          eager("has"),
          () -> {
            try (Lease lease = handedOn.completion().await()) {
              mayEnd.await();
              return lease.bytes();
            }
          });
      awaitWaiting(1);
      Ladder.awaitLook();
      assertThat(takes.state()).isEqualTo(Fork.State.RUNNING);
      mayEnd.countDown();
      assertThat(scope.join()).containsExactly(60L * KIB, 60L * KIB);
    }
  }

  /** All that is in its way is its own, but it is another one that ends it. */
  private void handOnInATry(BooleanSupplier until) throws InterruptedException {
    CountDownLatch mayEnd = new CountDownLatch(1);
    Completion.Source<Lease> handedOn = Completion.source();
    try (TaskScope<Long> scope = world.tasks.scope()) {
      scope.fork(
          eager("tries"),
          () ->
              Oom.retry(
                  device,
                  () -> {
                    try (DeviceBuffer buffer = device.allocate(60 * KIB)) {
                      Lease lease = buffer.lease(device.stream());
                      lease.handOn();
                      handedOn.complete(lease);
                      return allocateAndClose(60);
                    }
                  }));
      scope.fork(
          eager("has"),
          () -> {
            try (Lease lease = handedOn.completion().await()) {
              mayEnd.await();
              return lease.bytes();
            }
          });
      spinUntil(until);
      Ladder.awaitLook();
      mayEnd.countDown();
      assertThat(scope.join()).containsExactly(60L * KIB, 60L * KIB);
    }
    assertThat(device.memory().waits().splits()).as("splits").isZero();
  }

  @Test
  void aTryIsNotSplitForALeaseThatWasHandedOn() throws InterruptedException {
    handOnInATry(() -> device.budget().waitingCount() > 0);
  }

  @Test
  void whoSplitsAtOnceIsFound() {
    try (var _ = Mutant.enable("oom.split.hasty")) {
      assertThatThrownBy(() -> handOnInATry(() -> device.memory().waits().splits() > 0))
          .hasStackTraceContaining("all that is in its way is its own");
    }
  }

  @Test
  void aHolderThatJoinsWhoRunsIsWaitedFor() {
    AtomicBoolean mayEnd = new AtomicBoolean();
    waitsFor(
        () -> {
          try (TaskScope<Boolean> scope = world.tasks.scope()) {
            scope.fork(
                eager("runs"),
                () -> {
                  spinUntil(mayEnd::get);
                  return true;
                });
            scope.join();
          }
        },
        () -> mayEnd.set(true));
  }

  /** One leases and does something else; another one wants more; nobody is told anything. */
  private void waitsFor(Wait wait, Runnable end) {
    CountDownLatch leased = new CountDownLatch(1);
    try (TaskScope<Long> scope = world.tasks.scope()) {
      scope.fork(eager("holder"), () -> leaseAndWait(60, leased, wait));
      Fork<Long> wants =
          scope.fork(
              eager("wants"),
              () -> {
                leased.await();
                return allocateAndClose(60);
              });
      awaitWaiting(1);
      Ladder.awaitLook();
      assertThat(wants.state()).isEqualTo(Fork.State.RUNNING);
      end.run();
      assertThat(scope.join()).containsExactly(60L * KIB, 60L * KIB);
    }
    assertThat(device.memory().waits().rollbacks()).as("rollbacks").isZero();
    assertThat(device.memory().waits().splits()).as("splits").isZero();
  }

  private void awaitWaiting(int requests) {
    spinUntil(() -> device.budget().waitingCount() >= requests);
  }

  private static void spinUntil(BooleanSupplier holds) {
    while (!holds.getAsBoolean()) {
      Thread.onSpinWait();
    }
  }

  // --- trying again -------------------------------------------------------------------------

  @Test
  void theYoungerOfTwoTriesGivesWay() {
    AtomicInteger runsOfOne = new AtomicInteger();
    AtomicInteger runsOfTwo = new AtomicInteger();
    assertThat(tryBoth(eager("one"), runsOfOne, eager("two"), runsOfTwo))
        .containsExactly(80L * KIB, 80L * KIB);
    assertThat(runsOfOne).hasValue(1);
    assertThat(runsOfTwo).hasValue(2);
    assertThat(device.memory().waits().rollbacks()).as("rollbacks").isEqualTo(1);
  }

  @Test
  void theOneOfLowerPriorityGivesWay() {
    AtomicInteger runsOfOne = new AtomicInteger();
    AtomicInteger runsOfTwo = new AtomicInteger();
    tryBoth(eager("one").priority(1), runsOfOne, eager("two").priority(2), runsOfTwo);
    assertThat(runsOfOne).hasValue(2);
    assertThat(runsOfTwo).hasValue(1);
  }

  /** Two tries in whose first runs each leases and wants more; one begins first. */
  private List<Long> tryBoth(
      ForkOptions one, AtomicInteger runsOfOne, ForkOptions two, AtomicInteger runsOfTwo) {
    CyclicBarrier bothLease = new CyclicBarrier(2);
    CountDownLatch oneBegan = new CountDownLatch(1);
    try (TaskScope<Long> scope = world.tasks.scope()) {
      scope.fork(
          one,
          () ->
              Oom.retry(
                  device,
                  () -> {
                    oneBegan.countDown();
                    return leaseAndWantOnce(runsOfOne, bothLease);
                  }));
      scope.fork(
          two,
          () -> {
            oneBegan.await();
            return Oom.retry(device, () -> leaseAndWantOnce(runsOfTwo, bothLease));
          });
      return scope.join();
    }
  }

  /** Leaves closing to the rollback; leases end with it. */
  private long leaseAndWantOnce(AtomicInteger runs, CyclicBarrier others) {
    int run = runs.incrementAndGet();
    DeviceBuffer first = device.allocate(40 * KIB);
    long bytes;
    try (Lease lease = first.lease(device.stream())) {
      if (run == 1) {
        others.await();
      }
      DeviceBuffer second = device.allocate(40 * KIB);
      bytes = lease.bytes() + second.bytes();
      second.close();
    } catch (InterruptedException | BrokenBarrierException e) {
      throw new AssertionError(e);
    }
    first.close();
    return bytes;
  }

  @Test
  void whatTheTryAllocatedIsClosed() {
    AtomicInteger runs = new AtomicInteger();
    List<DeviceBuffer> made = new ArrayList<>();
    long left =
        world.tasks.enter(
            "task",
            0,
            () -> {
              try (Drill drill = Oom.drill(device, 3, Drill.Kind.ROLL_BACK)) {
                DeviceBuffer result =
                    Oom.retry(
                        device,
                        () -> {
                          runs.incrementAndGet();
                          DeviceBuffer last = null;
                          for (int i = 0; i < 3; i++) {
                            last = device.allocate(10 * KIB);
                            made.add(last);
                          }
                          return last;
                        });
                assertThat(drill.isOver()).isTrue();
                return result.bytes();
              }
            });

    assertThat(left).isEqualTo(10 * KIB);
    assertThat(runs).hasValue(2);
    assertThat(made).hasSize(5);
    assertThatThrownBy(() -> made.get(0).fill((byte) 1)).isInstanceOf(IllegalStateException.class);
    assertThatThrownBy(() -> made.get(1).fill((byte) 1)).isInstanceOf(IllegalStateException.class);
    made.subList(2, 5).forEach(DeviceBuffer::close);
  }

  @Test
  void workThatIsTooLargeAloneIsSplit() {
    List<Integer> parts =
        world.tasks.enter(
            "task",
            0,
            () ->
                Oom.splitAndRetry(
                    device,
                    150,
                    whole -> whole < 2 ? List.of(whole) : List.of(whole / 2, whole - whole / 2),
                    size -> leaseHalfAndWantHalf(size) > 0 ? size : -1));

    assertThat(parts).containsExactly(75, 75);
    assertThat(device.memory().waits().splits()).as("splits").isEqualTo(1);
  }

  @Test
  void whatCannotBeSplitAnyFurtherFailsWithTheReport() {
    assertThatThrownBy(
            () ->
                world.tasks.enter(
                    "task",
                    0,
                    () -> Oom.splitAndRetry(device, 150, List::of, this::leaseHalfAndWantHalf)))
        .isInstanceOf(OutOfDeviceMemoryException.class)
        .hasMessageContaining("all that is in its way is its own");
  }

  private long leaseHalfAndWantHalf(int kib) {
    try (DeviceBuffer half = device.allocate(kib * KIB / 2);
        Lease lease = half.lease(device.stream());
        DeviceBuffer other = device.allocate(kib * KIB / 2)) {
      return lease.bytes() + other.bytes();
    }
  }

  @Test
  void aDrillOutsideOfATryFails() {
    world.tasks.enter(
        "task",
        0,
        () -> {
          try (Drill drill = Oom.drill(device, 2, Drill.Kind.ROLL_BACK)) {
            device.allocate(10 * KIB).close();
            assertThatThrownBy(() -> device.allocate(10 * KIB))
                .isInstanceOf(OutOfDeviceMemoryException.class)
                .hasMessageContaining("this is a drill");
            device.allocate(10 * KIB).close();
            return drill.isOver();
          }
        });
  }

  @Test
  void aDrillSplits() {
    List<Integer> parts =
        world.tasks.enter(
            "task",
            0,
            () -> {
              try (Drill drill = Oom.drill(device, 1, Drill.Kind.SPLIT)) {
                assertThat(drill.isOver()).isFalse();
                return Oom.splitAndRetry(
                    device,
                    8,
                    whole -> List.of(whole / 2, whole / 2),
                    size -> (int) allocateAndClose(size) / KIB);
              }
            });
    assertThat(parts).containsExactly(4, 4);
  }

  @Test
  void workGivesWayInTheGuide() {
    double sum =
        world.tasks.enter(
            "guide",
            0,
            () -> {
              DeviceBuffer table = device.allocate(16 * KIB);
              table.fill((byte) 0);
              Range all = new Range(0, 2048);
              // snippet:retry
              List<Double> sums =
                  Oom.splitAndRetry(
                      device,
                      all,
                      Range::halves,
                      range -> {
                        try (DeviceBuffer part = device.allocate(range.bytes())) {
                          part.copyFrom(0, table, range.offset(), range.bytes());
                          return sum(part.toDoubles());
                        }
                      });
              // end:retry
              // snippet:drill
              try (Drill drill = Oom.drill(device, 1, Drill.Kind.SPLIT)) {
                assertThat(sumOf(table, all)).isEqualTo(sums.getFirst());
                assertThat(drill.isOver()).isTrue();
              }
              // end:drill
              table.close();
              return sums.getFirst();
            });
    assertThat(sum).isZero();
  }

  private double sumOf(DeviceBuffer table, Range all) {
    List<Double> sums =
        Oom.splitAndRetry(
            device,
            all,
            Range::halves,
            range -> {
              try (DeviceBuffer part = device.allocate(range.bytes())) {
                part.copyFrom(0, table, range.offset(), range.bytes());
                return sum(part.toDoubles());
              }
            });
    return sums.stream().mapToDouble(each -> each).sum();
  }

  private static double sum(double[] values) {
    return Arrays.stream(values).sum();
  }

  private record Range(int from, int to) {
    long offset() {
      return 8L * from;
    }

    long bytes() {
      return 8L * (to - from);
    }

    List<Range> halves() {
      int middle = (from + to) / 2;
      return middle == from
          ? List.of(this)
          : List.of(new Range(from, middle), new Range(middle, to));
    }
  }

  @Test
  void aThreadInNoTaskIsToldToEnter() {
    assertThatThrownBy(() -> Oom.retry(device, () -> 1))
        .isInstanceOf(IllegalStateException.class)
        .hasMessageContaining("TaskRuntime.enter");
  }

  @Test
  void aBodyThatSwallowsTheRollbackIsRunAgain() {
    AtomicInteger runs = new AtomicInteger();
    int result =
        world.tasks.enter(
            "task",
            0,
            () -> {
              try (Drill drill = Oom.drill(device, 1, Drill.Kind.ROLL_BACK)) {
                assertThat(drill.isOver()).isFalse();
                return Oom.retry(
                    device,
                    () -> {
                      try {
                        allocateAndClose(1);
                      } catch (MemoryRollbackException swallowed) {
                        return -1;
                      }
                      return runs.incrementAndGet();
                    });
              }
            });
    assertThat(result).isEqualTo(1);
  }

  /** A child's request rolls the try of its parent back. */
  @Test
  void childrenOfATryGiveWayForIt() {
    AtomicInteger runs = new AtomicInteger();
    List<Long> parts =
        world.tasks.enter(
            "task",
            0,
            () ->
                Oom.splitAndRetry(
                    device,
                    120,
                    whole -> List.of(whole / 2, whole / 2),
                    size -> {
                      runs.incrementAndGet();
                      try (DeviceBuffer half = device.allocate(size * KIB / 2);
                          Lease lease = half.lease(device.stream());
                          TaskScope<Long> scope = world.tasks.scope()) {
                        scope.fork(eager("child"), () -> allocateAndClose(size / 2));
                        return lease.bytes() + scope.join().getFirst();
                      }
                    }));
    assertThat(parts).containsExactly(60L * KIB, 60L * KIB);
    assertThat(runs).hasValue(3);
  }

  // --- each part is needed ------------------------------------------------------------------

  @Test
  void whoLeavesTheTurnOutOfTheGraphIsFound() {
    assertThatThrownBy(
            () -> {
              try (var _ = Mutant.enable("oom.turn.skip")) {
                returnsThatWaitForEachOther(config().withWait(Duration.ofMillis(200)));
              }
            })
        .hasStackTraceContaining("nothing came back within 200 ms");
  }

  @Test
  void whoRollsTheOldestBackIsFound() {
    try (var _ = Mutant.enable("oom.victim.oldest")) {
      assertThatThrownBy(this::theYoungerOfTwoTriesGivesWay).isInstanceOf(AssertionError.class);
    }
  }

  // --- external holders ---------------------------------------------------------------------

  /** With no time of grace at all: a device that works, or a task that runs, is never suspected. */
  @Test
  void whoWaitsForItsDeviceIsNotSuspected() {
    Ladder.graceNanos = 0;
    CountDownLatch leased = new CountDownLatch(1);
    try (TestDevice stepped = TestDevice.stepped(config())) {
      Device slow = stepped.device;
      try (TaskScope<Long> scope = stepped.tasks.scope()) {
        scope.fork(
            eager("holder"),
            () -> {
              try (DeviceBuffer buffer = slow.allocate(50 * KIB)) {
                buffer.fill((byte) 1);
                try (Lease lease = buffer.lease(slow.stream())) {
                  Completion<Void> reached = slow.context().reached();
                  leased.countDown();
                  reached.await();
                  return lease.bytes();
                }
              }
            });
        Fork<Long> tries =
            scope.fork(
                eager("tries"),
                () -> {
                  leased.await();
                  return Oom.retry(
                      slow,
                      () -> {
                        try (DeviceBuffer buffer = slow.allocate(30 * KIB);
                            Lease lease = buffer.lease(slow.stream());
                            DeviceBuffer more = slow.allocate(50 * KIB)) {
                          return lease.bytes() + more.bytes();
                        }
                      });
                });
        spinUntil(() -> slow.budget().waitingCount() > 0);
        for (int i = 0; i < 5; i++) {
          Ladder.awaitLook();
        }
        assertThat(slow.memory().waits().rollbacks()).as("rollbacks").isZero();
        while (tries.state() == Fork.State.RUNNING) {
          stepped.stepper().completeAll();
        }
        assertThat(scope.join()).containsExactly(50L * KIB, 80L * KIB);
      }
    }
  }

  /** Who waits elsewhere is suspected after a while, and a try gives way for it. */
  @Test
  void aTryGivesWayForATaskThatIsKeptByWhoWaitsElsewhere() {
    AtomicInteger runs = new AtomicInteger();
    CountDownLatch leased = new CountDownLatch(1);
    CountDownLatch done = new CountDownLatch(1);
    try (TaskScope<Long> scope = world.tasks.scope()) {
      // for a message that comes once the other one is through
      scope.fork(eager("elsewhere"), () -> leaseAndWait(30, leased, done::await));
      scope.fork(
          eager("older"),
          () -> {
            leased.await();
            spinUntil(() -> runs.get() > 0);
            long bytes = allocateAndClose(50);
            done.countDown();
            return bytes;
          });
      scope.fork(
          eager("tries"),
          () -> {
            leased.await();
            return Oom.retry(
                device,
                () -> {
                  try (DeviceBuffer buffer = device.allocate(40 * KIB);
                      Lease lease = buffer.lease(device.stream())) {
                    if (runs.incrementAndGet() == 1) {
                      awaitWaiting(1); // else the second run's request could come first
                    }
                    return lease.bytes() + allocateAndClose(50);
                  }
                });
          });
      assertThat(scope.join()).containsExactly(30L * KIB, 50L * KIB, 90L * KIB);
    }
    assertThat(runs).hasValueGreaterThan(1);
  }

  /** A lease ends between the last look and the verdict; what was suspected is not so any more. */
  private long rollbacksWhereALeaseEndsAtLast() {
    try (TestDevice stepped = TestDevice.stepped(config())) {
      Device slow = stepped.device;
      DeviceBuffer idle = stepped.filled(stepped.stepper(), 60 * KIB, 7);
      Lease lease = idle.lease(slow.stream());
      Ladder.beforeTold = lease::close;
      try (TaskScope<Long> scope = stepped.tasks.scope()) {
        Fork<Long> tries =
            scope.fork(eager("tries"), () -> Oom.retry(slow, () -> keepAndWant(slow, 30, 40)));
        while (tries.state() == Fork.State.RUNNING) {
          stepped.stepper().completeAll();
        }
        assertThat(scope.join()).containsExactly(70L * KIB);
      } finally {
        Ladder.beforeTold = () -> {};
      }
      lease.close();
      idle.close();
      return slow.memory().waits().rollbacks();
    }
  }

  private static long keepAndWant(Device device, int keptKib, int wantedKib) {
    try (DeviceBuffer kept = device.allocate(keptKib * KIB);
        Hold hold = kept.hold();
        DeviceBuffer wanted = device.allocate(wantedKib * KIB)) {
      return hold == null ? 0 : kept.bytes() + wanted.bytes();
    }
  }

  @Test
  void whatIsOnlySuspectedIsAddedUpBeforeAnybodyIsTold() {
    assertThat(rollbacksWhereALeaseEndsAtLast()).as("rollbacks").isZero();
  }

  @Test
  void whoDoesNotAddUpIsFound() {
    try (var _ = Mutant.enable("oom.second-look.skip")) {
      assertThat(rollbacksWhereALeaseEndsAtLast()).as("rollbacks").isOne();
    }
  }

  // --- leaving ------------------------------------------------------------------------------

  @Test
  void whoWaitsAfterARollbackCanBeCancelled() {
    CountDownLatch leased = new CountDownLatch(1);
    CountDownLatch mayEnd = new CountDownLatch(1);
    try (TaskScope<Long> scope = collecting()) {
      scope.fork(eager("holder"), () -> leaseAndWait(60, leased, mayEnd::await));
      Fork<Long> tries =
          scope.fork(
              eager("tries"),
              () -> {
                leased.await();
                return Oom.retry(
                    device,
                    () -> {
                      try (DeviceBuffer buffer = device.allocate(30 * KIB);
                          Lease lease = buffer.lease(device.stream())) {
                        return lease.bytes() + allocateAndClose(50);
                      }
                    });
              });
      spinUntil(() -> device.memory().waits().rollbacks() > 0); // suspected
      awaitWaiting(1);
      tries.task().cancel(null);
      spinUntil(() -> tries.state() != Fork.State.RUNNING);
      assertThat(tries.state()).isEqualTo(Fork.State.CANCELLED);
      mayEnd.countDown();
      scope.join();
    }
  }

  @Test
  void aDeadlineEndsTheWaitInATry() {
    CountDownLatch leased = new CountDownLatch(1);
    CountDownLatch mayEnd = new CountDownLatch(1);
    try (TaskScope<Long> scope = collecting()) {
      scope.fork(eager("holder"), () -> leaseAndWait(60, leased, mayEnd::await));
      Fork<Long> tries =
          scope.fork(
              eager("tries").deadline(Duration.ofMillis(300)),
              () -> {
                leased.await();
                return Oom.retry(
                    device,
                    () -> {
                      try (DeviceBuffer buffer = device.allocate(30 * KIB)) {
                        return buffer.bytes() + allocateAndClose(50);
                      }
                    });
              });
      spinUntil(() -> tries.state() != Fork.State.RUNNING);
      mayEnd.countDown();
      scope.join();
      assertThat(tries.state()).isIn(Fork.State.CANCELLED, Fork.State.FAILED);
    }
  }

  private long allocateAndClose(int kib) {
    try (DeviceBuffer buffer = device.allocate(kib * KIB)) {
      return buffer.bytes();
    }
  }

  /** What a holder does meanwhile. */
  private interface Wait {
    void await() throws InterruptedException;
  }

  private long leaseAndWait(int kib, CountDownLatch leased, Wait wait) throws InterruptedException {
    try (DeviceBuffer buffer = device.allocate(kib * KIB);
        Lease lease = buffer.lease(device.stream())) {
      leased.countDown();
      wait.await();
      return lease.bytes();
    }
  }

  private boolean leaseAndWant(int kib, int more, CyclicBarrier others) throws Exception {
    try (DeviceBuffer buffer = device.allocate(kib * KIB);
        Lease lease = buffer.lease(device.stream())) {
      others.await();
      try (DeviceBuffer another = device.allocate(more * KIB)) {
        return another.bytes() > 0 && lease.address() != 0;
      }
    }
  }

  private <T> TaskScope<T> collecting() {
    return world.tasks.scope(ScopeOptions.of(ScopePolicy.COLLECT));
  }

  private static ForkOptions eager(String name) {
    return ForkOptions.named(name).eager(true);
  }
}
