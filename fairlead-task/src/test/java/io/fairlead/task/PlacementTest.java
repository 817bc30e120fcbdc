package io.fairlead.task;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatExceptionOfType;
import static org.assertj.core.api.Assertions.assertThatIllegalArgumentException;
import static org.assertj.core.api.Assertions.assertThatIllegalStateException;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fairlead.fault.DeadlineExceededException;
import io.fairlead.fault.Mutant;
import io.fairlead.fault.TaskCancelledException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What each placement promises. Runs on own carriers, and once more on the JDK's. */
@Timeout(30)
@SuppressWarnings("ThreadPriorityCheck") // a yield is one more way to suspend
class PlacementTest {
  private static final ForkOptions WITH_PARENT =
      ForkOptions.DEFAULT.placement(Placement.WITH_PARENT);
  private static final ForkOptions INITIAL = ForkOptions.DEFAULT.placement(Placement.INITIAL);
  private static final Duration LONG = Duration.ofSeconds(50);

  private TaskRuntime runtime;

  @BeforeEach
  void open() {
    runtime = TaskRuntime.open(TaskConfig.DEFAULT);
  }

  @AfterEach
  void close() {
    runtime.close();
  }

  private boolean own() {
    return runtime.carriers().mode() == CarrierMode.OWN;
  }

  private static ForkOptions in(Strand strand) {
    return ForkOptions.DEFAULT.placement(new Placement.Serial(strand));
  }

  private void asTask(String name, TaskBody<?> body) {
    runtime.enter(name, 0, body::run);
  }

  /** Nobody is in it while another is. */
  static final class Guard {
    private final AtomicReference<@Nullable Object> holder = new AtomicReference<>();
    final AtomicInteger entered = new AtomicInteger();

    void inside() {
      Object me = new Object();
      Object other = holder.getAndSet(me);
      assertThat(other).as("somebody else runs").isNull();
      entered.incrementAndGet();
      for (int i = 0; i < 20; i++) {
        Thread.onSpinWait();
      }
      assertThat(holder.compareAndSet(me, null)).as("nobody else has run").isTrue();
    }
  }

  // --- serial -----------------------------------------------------------------------------------

  @Test
  void atMostOneOfAStrandRunsAtATime() {
    Strand strand = runtime.strand("one");
    Guard guard = new Guard();
    try (TaskScope<Integer> scope = runtime.scope()) {
      for (int i = 0; i < 200; i++) {
        scope.fork(
            in(strand),
            () -> {
              guard.inside();
              Thread.yield();
              guard.inside();
              Eventually.suspend();
              guard.inside();
              LockSupport.parkNanos(1_000);
              guard.inside();
              return 1;
            });
      }
      assertThat(scope.join()).hasSize(200);
    }
    assertThat(guard.entered).hasValue(800);
  }

  @Test
  void theGuardFindsMembersThatRunBesideEachOther() {
    assumeTrue(own(), "the bug that is planted is the scheduler's");
    try (Mutant.Handle _ = Mutant.enable("strand.ignored")) {
      Eventually.holds("two were seen", this::twoRunAtATime);
    }
  }

  private boolean twoRunAtATime() {
    Strand strand = runtime.strand("ignored");
    Guard guard = new Guard();
    try (TaskScope<Integer> scope = runtime.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
      for (int i = 0; i < 200; i++) {
        scope.fork(in(strand), () -> guardedTwice(guard));
      }
      return scope.join().size() < 200;
    }
  }

  @Test
  void theyBeginInForkOrder() {
    Strand strand = runtime.strand("order");
    List<Integer> order = new ArrayList<>(); // the strand guards it
    try (TaskScope<Boolean> scope = runtime.scope()) {
      for (int i = 0; i < 1_000; i++) {
        int number = i;
        scope.fork(in(strand), () -> order.add(number));
      }
      scope.join();
    }
    assertThat(order).isEqualTo(IntStream.range(0, 1_000).boxed().toList());
  }

  @Test
  void theTurnIsReleasedWhereAMemberAwaits() {
    Strand strand = runtime.strand("waits");
    Completion.Source<Integer> later = Completion.source();
    try (TaskScope<Integer> scope = runtime.scope()) {
      scope.fork(in(strand), () -> later.completion().await());
      scope.fork(in(strand), () -> later.completion().await(WaitMode.SPIN));
      scope.fork(in(strand), () -> later.completion().await(WaitMode.BLOCKING, LONG));
      scope.fork(
          in(strand),
          () -> {
            later.complete(7);
            return 7;
          });
      assertThat(scope.join()).containsExactly(7, 7, 7, 7);
    }
  }

  @Test
  void theTurnIsReleasedWhereAMemberJoins() {
    Strand strand = runtime.strand("joins");
    try (TaskScope<Integer> scope = runtime.scope()) {
      scope.fork(
          in(strand),
          () -> {
            try (TaskScope<Integer> inner = runtime.scope()) {
              inner.fork(in(strand), () -> 1);
              inner.fork(() -> 2);
              inner.fork(ForkOptions.DEFAULT.eager(true), () -> 3);
              return inner.join().stream().mapToInt(Integer::intValue).sum();
            }
          });
      assertThat(scope.join()).containsExactly(6);
    }
  }

  @Test
  void theTurnIsReleasedWhileAMemberWaitsForRoomInAnOwnersQueue() throws InterruptedException {
    try (TaskRuntime small = TaskRuntime.open(TaskConfig.DEFAULT.ownerQueue(2))) {
      Owner owner = small.owner("small", Role.OWNER);
      CountDownLatch blocked = new CountDownLatch(1);
      CountDownLatch open = new CountDownLatch(1);
      assertThat(owner.trySubmit(() -> await(blocked, open))).isTrue();
      blocked.await();
      while (owner.trySubmit(() -> {})) {
        Thread.onSpinWait();
      }
      Strand strand = small.strand("full");
      try (TaskScope<Integer> scope = small.scope()) {
        scope.fork(in(strand), () -> owner.call(() -> 1).await());
        scope.fork(
            in(strand),
            () -> {
              open.countDown();
              return 2;
            });
        assertThat(scope.join()).containsExactly(1, 2);
      }
    }
  }

  private static void await(CountDownLatch reached, CountDownLatch gate) {
    reached.countDown();
    try {
      gate.await();
    } catch (InterruptedException e) {
      throw new IllegalStateException(e);
    }
  }

  @Test
  void theTurnIsReleasedWhereAMemberWaitsForAGateThatAnotherHolds() {
    Gate gate = Gate.of("e", ThreadRule.ONE_AT_A_TIME, null, Set.of(), null);
    Strand strand = runtime.strand("gate");
    Completion.Source<Integer> later = Completion.source();
    try (TaskScope<Integer> scope = runtime.scope()) {
      scope.fork(in(strand), () -> gate.call("holds", () -> later.completion().await()));
      scope.fork(in(strand), () -> gate.call("wants", () -> 2));
      scope.fork(
          in(strand),
          () -> {
            later.complete(1);
            return 3;
          });
      assertThat(scope.join()).containsExactly(1, 2, 3);
    }
  }

  @Test
  void onOwnCarriersTheTurnIsReleasedWhereverAMemberSuspends() {
    assumeTrue(own(), "the JDK's carriers keep the turn in waits that are not ours");
    Strand strand = runtime.strand("any");
    CountDownLatch latch = new CountDownLatch(1);
    ReentrantLock lock = new ReentrantLock();
    try (TaskScope<Integer> scope = runtime.scope()) {
      scope.fork(
          in(strand),
          () -> {
            lock.lock();
            try {
              latch.await();
              return 1;
            } finally {
              lock.unlock();
            }
          });
      scope.fork(
          in(strand),
          () -> {
            lock.lockInterruptibly();
            lock.unlock();
            return 2;
          });
      scope.fork(
          in(strand),
          () -> {
            latch.countDown();
            return 3;
          });
      assertThat(scope.join()).containsExactly(1, 2, 3);
    }
  }

  @Test
  void onTheJdksCarriersTheTurnIsKeptInWaitsThatAreNotOurs() throws InterruptedException {
    try (TaskRuntime jdk = TaskRuntime.open(TaskConfig.DEFAULT.carriers(CarrierMode.JDK))) {
      Strand strand = jdk.strand("kept");
      CountDownLatch reached = new CountDownLatch(1);
      CountDownLatch gate = new CountDownLatch(1);
      AtomicBoolean begun = new AtomicBoolean();
      try (TaskScope<Object> scope = jdk.scope()) {
        scope.fork(
            in(strand),
            () -> {
              await(reached, gate);
              return begun.get();
            });
        scope.fork(in(strand), () -> begun.getAndSet(true));
        reached.await();
        gate.countDown();
        assertThat(scope.join()).containsExactly(false, false);
      }
    }
  }

  @Test
  void aStrandGoesOnAfterAMemberFailed() {
    Strand strand = runtime.strand("fails");
    AtomicInteger begun = new AtomicInteger();
    try (TaskScope<Integer> scope = runtime.scope()) {
      scope.fork(in(strand), begun::incrementAndGet);
      scope.fork(
          in(strand),
          () -> {
            throw new IllegalArgumentException("planted");
          });
      for (int i = 0; i < 100; i++) {
        scope.fork(in(strand), begun::incrementAndGet);
      }
      assertThatIllegalArgumentException().isThrownBy(scope::join).withMessage("planted");
    }
    assertThat(begun.get()).isBetween(1, 101);
    try (TaskScope<Integer> scope = runtime.scope()) {
      scope.fork(in(strand), () -> 5);
      assertThat(scope.join()).containsExactly(5);
    }
  }

  @Test
  void membersThatWaitForTheirTurnAreStoppedWithTheirScope() {
    Strand strand = runtime.strand("stopped");
    AtomicInteger begun = new AtomicInteger();
    Completion.Source<Integer> never = Completion.source();
    try (TaskScope<Integer> scope = runtime.scope()) {
      List<Fork<Integer>> forks = new ArrayList<>();
      for (int i = 0; i < 50; i++) {
        forks.add(
            scope.fork(
                in(strand),
                () -> {
                  begun.incrementAndGet();
                  return never.completion().await();
                }));
      }
      scope.cancel(null);
      assertThatExceptionOfType(TaskCancelledException.class).isThrownBy(scope::join);
      assertThat(forks).allMatch(fork -> fork.state() == Fork.State.CANCELLED);
    }
    try (TaskScope<Integer> scope = runtime.scope()) {
      scope.fork(in(strand), () -> 6);
      assertThat(scope.join()).containsExactly(6);
    }
  }

  @Test
  void aStrandServesTenThousandThatAllWait() {
    Strand strand = runtime.strand("many");
    Completion.Source<Integer> later = Completion.source();
    int[] count = new int[2]; // the strand guards it
    try (TaskScope<Integer> scope = runtime.scope()) {
      for (int i = 0; i < 10_000; i++) {
        scope.fork(
            in(strand),
            () -> {
              if (++count[0] == 10_000) {
                later.complete(1);
              }
              int one = later.completion().await();
              return count[1] += one;
            });
      }
      assertThat(scope.join()).hasSize(10_000);
    }
    assertThat(count).containsExactly(10_000, 10_000);
  }

  @Test
  void scopesOfTwoRuntimesAndModesShareAStrand() {
    Strand strand = runtime.strand("shared");
    Guard guard = new Guard();
    try (TaskRuntime jdk = TaskRuntime.open(TaskConfig.DEFAULT.carriers(CarrierMode.JDK));
        TaskScope<Integer> here = runtime.scope();
        TaskScope<Integer> there = jdk.scope()) {
      for (int i = 0; i < 100; i++) {
        here.fork(in(strand), () -> guardedTwice(guard));
        there.fork(in(strand), () -> guardedTwice(guard));
      }
      there.join();
      here.join();
    }
    assertThat(guard.entered).hasValue(400);
  }

  private static int guardedTwice(Guard guard) {
    guard.inside();
    Eventually.suspend();
    guard.inside();
    return 1;
  }

  // --- with parent ------------------------------------------------------------------------------

  @Test
  void noneOfAFamilyRunsBesideAnother() {
    Guard guard = new Guard();
    asTask(
        "parent",
        () -> {
          try (TaskScope<Integer> scope = runtime.scope()) {
            for (int i = 0; i < 100; i++) {
              scope.fork(WITH_PARENT, () -> guardedTwice(guard));
              guard.inside();
              if (i % 10 == 0) {
                Eventually.suspend();
                guard.inside();
              }
            }
            scope.join();
            guard.inside();
          }
          return null;
        });
    assertThat(guard.entered).hasValue(311);
  }

  @Test
  void aParentOnAVirtualThreadOfItsOwnHasAFamilyToo() {
    Guard guard = new Guard();
    try (TaskScope<Integer> outer = runtime.scope()) {
      for (int parent = 0; parent < 4; parent++) {
        Guard family = new Guard();
        outer.fork(
            ForkOptions.DEFAULT.eager(parent % 2 == 0),
            () -> {
              try (TaskScope<Integer> scope = runtime.scope()) {
                for (int i = 0; i < 50; i++) {
                  scope.fork(WITH_PARENT, () -> guardedTwice(family));
                  Thread.yield();
                  family.inside();
                }
                scope.join();
              }
              guard.entered.addAndGet(family.entered.get());
              return 0;
            });
      }
      outer.join();
    }
    assertThat(guard.entered).hasValue(4 * 150);
  }

  @Test
  void noChildBeginsBeforeAParentThatComputesWaits() {
    AtomicInteger begun = new AtomicInteger();
    asTask(
        "computes",
        () -> {
          try (TaskScope<Integer> scope = runtime.scope()) {
            scope.fork(WITH_PARENT, begun::incrementAndGet);
            for (long end = System.nanoTime() + 5_000_000; System.nanoTime() - end < 0; ) {
              assertThat(begun).hasValue(0);
            }
            assertThat(scope.join()).containsExactly(1);
          }
          return null;
        });
  }

  @Test
  void aParentMayAwaitWhatItsChildCompletes() {
    asTask(
        "awaits",
        () -> {
          Completion.Source<Integer> later = Completion.source();
          try (TaskScope<Boolean> scope = runtime.scope()) {
            scope.fork(WITH_PARENT, () -> later.complete(3));
            assertThat(later.completion().await(LONG)).isEqualTo(3);
            assertThat(scope.join()).containsExactly(true);
          }
          return null;
        });
  }

  @Test
  void grandchildrenShareTheTurnOfTheFamily() {
    Guard guard = new Guard();
    asTask("grandparent", () -> family(guard, 3));
    assertThat(guard.entered).hasValue(2 * (1 + 3 + 9 + 27));
  }

  private int family(Guard guard, int depth) {
    guard.inside();
    if (depth > 0) {
      try (TaskScope<Integer> scope = runtime.scope()) {
        for (int i = 0; i < 3; i++) {
          scope.fork(WITH_PARENT, () -> family(guard, depth - 1));
        }
        scope.join();
      }
    }
    guard.inside();
    return 0;
  }

  @Test
  void aMemberOfAStrandSharesItWithItsChildren() {
    Strand strand = runtime.strand("with children");
    Guard guard = new Guard();
    try (TaskScope<Integer> scope = runtime.scope()) {
      for (int i = 0; i < 20; i++) {
        scope.fork(in(strand), () -> family(guard, 1));
      }
      scope.join();
    }
    assertThat(guard.entered).hasValue(20 * 8);
  }

  @Test
  void aChildThatRunsInPlaceMayFoundAFamilyAndLeavesItAtItsEnd() {
    Guard guard = new Guard();
    asTask(
        "outer",
        () -> {
          for (int i = 0; i < 50; i++) {
            try (TaskScope<Integer> scope = runtime.scope()) {
              scope.fork(() -> family(guard, 1));
              scope.join();
            }
          }
          // whoever runs in place has left: a child of this one needs no turn of theirs
          return family(guard, 1);
        });
    assertThat(guard.entered).hasValue(51 * 8);
  }

  @Test
  void tenThousandChildrenOfOneFamily() {
    asTask(
        "big",
        () -> {
          int[] count = new int[1]; // the family's turn guards it
          try (TaskScope<Integer> scope = runtime.scope()) {
            for (int i = 0; i < 10_000; i++) {
              scope.fork(WITH_PARENT, () -> ++count[0]);
            }
            scope.join();
          }
          assertThat(count[0]).isEqualTo(10_000);
          return null;
        });
  }

  @Test
  void aFailureStopsTheFamilyAndTheParentGoesOn() {
    asTask(
        "fails",
        () -> {
          try (TaskScope<Integer> scope = runtime.scope()) {
            scope.fork(
                WITH_PARENT,
                () -> {
                  throw new IllegalArgumentException("planted");
                });
            Completion.Source<Integer> never = Completion.source();
            for (int i = 0; i < 20; i++) {
              scope.fork(WITH_PARENT, () -> never.completion().await());
            }
            assertThatIllegalArgumentException().isThrownBy(scope::join).withMessage("planted");
          }
          return family(new Guard(), 2);
        });
  }

  @Test
  void anInterruptWhileItWaitsForItsTurnIsSeenAfterwards() {
    asTask(
        "interrupted",
        () -> {
          Task me = Task.current();
          Completion.Source<Integer> later = Completion.source();
          try (TaskScope<Integer> scope = runtime.scope()) {
            scope.fork(
                WITH_PARENT,
                () -> {
                  later.complete(1);
                  me.interrupt(); // the parent can go on, but this one has the turn
                  return 1;
                });
            try {
              later.completion().await();
            } catch (io.fairlead.fault.TaskInterruptedException seen) {
              assertThat(me.isInterrupted()).isTrue();
            }
            assertThat(Task.interrupted()).isTrue();
            assertThat(scope.join()).containsExactly(1);
          }
          return null;
        });
  }

  @Test
  void anAffineParentGivesUpItsTurnToo() {
    assumeTrue(own(), "affine tasks need own carriers");
    Owner owner = runtime.owner("affine", Role.OWNER);
    Guard guard = new Guard();
    int done =
        owner
            .affine(
                () -> {
                  int result = family(guard, 2);
                  assertThat(owner.isOwnerThread()).isTrue();
                  return result;
                })
            .await();
    assertThat(done).isZero();
    assertThat(guard.entered).hasValue(2 * 13);
  }

  @Test
  void aVirtualThreadOfTheUsersThatEnteredIsAParent() throws InterruptedException {
    Guard guard = new Guard();
    Thread users = Thread.ofVirtual().start(() -> asTask("user's", () -> family(guard, 2)));
    users.join();
    assertThat(guard.entered).hasValue(2 * 13);
  }

  // --- initial ----------------------------------------------------------------------------------

  private Thread osThread() {
    return own() ? VirtualThreads.carrier() : Thread.currentThread();
  }

  @Test
  void anInitialTaskStaysOnItsOsThread() {
    try (TaskScope<Integer> scope = runtime.scope()) {
      for (int i = 0; i < 40; i++) {
        scope.fork(INITIAL, this::staysHere);
        scope.fork(ForkOptions.DEFAULT.eager(true), this::wanders);
      }
      assertThat(scope.join()).hasSize(80);
    }
  }

  private int wanders() {
    for (int i = 0; i < 50; i++) {
      Thread.yield();
    }
    return 0;
  }

  private int staysHere() {
    Thread home = osThread();
    assertThat(home.isVirtual()).isFalse();
    Set<Thread> seen = Collections.newSetFromMap(new java.util.IdentityHashMap<>());
    for (int i = 0; i < 50; i++) {
      Eventually.suspend();
      seen.add(osThread());
      Thread.yield();
      seen.add(osThread());
      LockSupport.parkNanos(10_000);
      seen.add(osThread());
    }
    assertThat(seen).containsExactly(home);
    return 1;
  }

  @Test
  void anInitialTaskForksJoinsAndHasAFamily() {
    Guard guard = new Guard();
    try (TaskScope<Integer> scope = runtime.scope()) {
      scope.fork(
          INITIAL,
          () -> {
            Thread home = osThread();
            int result = family(guard, 2);
            assertThat(osThread()).isSameAs(home);
            return result;
          });
      scope.join();
    }
    assertThat(guard.entered).hasValue(2 * 13);
  }

  @Test
  void oneThatSleptIsWokenOnItsThread() {
    Completion.Source<Integer> later = Completion.source();
    AtomicInteger waiting = new AtomicInteger();
    try (TaskScope<Integer> scope = runtime.scope()) {
      for (int i = 0; i < 8; i++) {
        scope.fork(
            INITIAL,
            () -> {
              Thread home = osThread();
              waiting.incrementAndGet();
              int value = later.completion().await();
              assertThat(osThread()).isSameAs(home);
              return value;
            });
      }
      Eventually.holds("all wait", () -> waiting.get() == 8);
      later.complete(2);
      assertThat(scope.join()).hasSize(8).containsOnly(2);
    }
  }

  // --- all carriers busy ------------------------------------------------------------------------

  @Test
  void strandsAndFamiliesGoOnWhileAllCarriersCompute() {
    assumeTrue(own(), "the JDK's carriers are not replaced while tasks compute");
    AtomicBoolean stop = new AtomicBoolean();
    AtomicInteger spinning = new AtomicInteger();
    int processors = Runtime.getRuntime().availableProcessors();
    Strand strand = runtime.strand("live");
    Guard guard = new Guard();
    try (TaskScope<Integer> busy = runtime.scope();
        TaskScope<Integer> scope = runtime.scope()) {
      for (int i = 0; i < processors; i++) {
        busy.fork(
            () -> {
              spinning.incrementAndGet();
              while (!stop.get()) {
                Thread.onSpinWait();
              }
              return 0;
            });
      }
      Eventually.holds("all spin", () -> spinning.get() == processors);
      try {
        for (int i = 0; i < 20; i++) {
          scope.fork(in(strand), () -> guardedTwice(guard));
          scope.fork(ForkOptions.DEFAULT.eager(true), () -> family(new Guard(), 1));
        }
        assertThat(scope.join()).hasSize(40);
      } finally {
        stop.set(true);
      }
      busy.cancel(null);
    }
  }

  @Test
  void anInitialTaskBegunWhileAllCarriersComputeRunsWhenOneIsFree() {
    AtomicBoolean stop = new AtomicBoolean();
    AtomicInteger spinning = new AtomicInteger();
    int processors = Runtime.getRuntime().availableProcessors();
    try (TaskScope<Integer> scope = runtime.scope()) {
      for (int i = 0; i < processors; i++) {
        scope.fork(
            () -> {
              spinning.incrementAndGet();
              while (!stop.get()) {
                Thread.onSpinWait();
              }
              return 0;
            });
      }
      Eventually.holds("all spin", () -> spinning.get() == processors);
      for (int i = 0; i < 10; i++) {
        scope.fork(INITIAL, this::staysHere);
      }
      stop.set(true);
      assertThat(scope.join()).hasSize(processors + 10);
    }
  }

  // --- deadlines --------------------------------------------------------------------------------

  private static ForkOptions within(Duration deadline) {
    return ForkOptions.named("late").deadline(deadline);
  }

  @Test
  void aForkIsCancelledWhenItsDeadlinePasses() {
    Completion.Source<Integer> never = Completion.source();
    ScopeOptions collect = ScopeOptions.of(ScopePolicy.COLLECT);
    for (Placement placement :
        List.of(Placement.FREE, Placement.INITIAL, new Placement.Serial(runtime.strand("late")))) {
      try (TaskScope<Integer> scope = runtime.scope(collect)) {
        ForkOptions late = within(Duration.ofMillis(20)).placement(placement);
        Fork<Integer> fork = scope.fork(late, () -> never.completion().await());
        Fork<Integer> other = scope.fork(within(LONG), () -> 4);
        assertThat(scope.join()).containsExactly(4);
        assertThat(other.state()).isEqualTo(Fork.State.SUCCEEDED);
        assertThat(fork.state()).isEqualTo(Fork.State.CANCELLED);
        assertThat(fork.failure())
            .isInstanceOf(DeadlineExceededException.class)
            .hasMessageContaining("late");
      }
    }
  }

  @Test
  void joinThrowsTheDeadlineOfAForkThatMustSucceed() {
    Completion.Source<Integer> never = Completion.source();
    asTask(
        "parent",
        () -> {
          try (TaskScope<Integer> scope = runtime.scope()) {
            scope.fork(within(Duration.ofMillis(5)), () -> never.completion().await());
            Fork<Integer> sibling = scope.fork(within(LONG), () -> never.completion().await());
            assertThatExceptionOfType(DeadlineExceededException.class)
                .isThrownBy(scope::join)
                .withMessageContaining("task 'late'");
            assertThat(sibling.state()).isEqualTo(Fork.State.CANCELLED);
          }
          return null;
        });
  }

  @Test
  void aDeadlineThatHasPassedIsRefused() {
    assertThatIllegalArgumentException()
        .isThrownBy(() -> ForkOptions.DEFAULT.deadline(Duration.ZERO));
  }

  // --- bad use ----------------------------------------------------------------------------------

  @Test
  void aClosedOwnerIsRefused() {
    Owner owner = runtime.owner("gone", Role.OWNER);
    owner.close();
    try (TaskScope<Integer> scope = runtime.scope()) {
      assertThatIllegalStateException()
          .isThrownBy(
              () -> scope.fork(ForkOptions.DEFAULT.placement(new Placement.Bound(owner)), () -> 1))
          .withMessageContaining("owner 'gone' is closed");
    }
  }

  /** Its owner may be waiting for the one that joins. */
  @Test
  void aBoundChildThatIsCancelledBeforeItBeginsIsNotWaitedFor() {
    Owner owner = runtime.owner("busy", Role.OWNER);
    CountDownLatch hold = new CountDownLatch(1);
    owner.trySubmit(() -> TaskScopeTest.awaitQuietly(hold));
    try (TaskScope<Integer> scope = runtime.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
      AtomicInteger begun = new AtomicInteger();
      Fork<Integer> child =
          scope.fork(
              ForkOptions.DEFAULT.placement(new Placement.Bound(owner)), begun::incrementAndGet);
      scope.fork(
          ForkOptions.DEFAULT.eager(true),
          () -> {
            scope.cancel(new IllegalArgumentException("given up"));
            return 2;
          });
      scope.join();
      assertThat(child.state()).isEqualTo(Fork.State.CANCELLED);
      assertThat(child.failure()).hasMessageContaining("given up");
      hold.countDown();
      assertThat(owner.call(() -> 3).await()).isEqualTo(3);
      assertThat(begun).hasValue(0);
    } finally {
      hold.countDown();
    }
  }

  @Test
  void aStrandOfAClosedRuntimeIsRefused() {
    TaskRuntime other = TaskRuntime.open(TaskConfig.DEFAULT);
    Strand strand = other.strand("old");
    other.close();
    assertThatIllegalStateException().isThrownBy(() -> other.strand("new"));
    try (TaskScope<Integer> scope = runtime.scope()) {
      assertThatIllegalStateException()
          .isThrownBy(() -> scope.fork(in(strand), () -> 1))
          .withMessageContaining("strand 'old' belongs to a runtime that is closed");
      assertThat(scope.join()).isEmpty();
    }
  }

  @Test
  void aThreadThatNeverEnteredIsNoParent() {
    try (TaskScope<Integer> scope = runtime.scope()) {
      assertThatIllegalStateException()
          .isThrownBy(() -> scope.fork(WITH_PARENT, () -> 1))
          .withMessageContaining("enter(...) first");
      scope.fork(() -> 2);
      assertThat(scope.join()).containsExactly(2);
    }
  }

  @Test
  void aTaskOnAnOwnersThreadIsNoParent() {
    Owner owner = runtime.owner("home", Role.OWNER);
    owner
        .call(
            () -> {
              try (TaskScope<Integer> scope = runtime.scope()) {
                assertThatIllegalStateException()
                    .isThrownBy(() -> scope.fork(WITH_PARENT, () -> 1))
                    .withMessageContaining("owner 'home'");
              }
              return null;
            })
        .await();
  }

  @Test
  void aChildThatJoinsAScopeOfAnAncestorIsToldSo() {
    try (TaskScope<Integer> scope = runtime.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
      Fork<Integer> child =
          scope.fork(
              ForkOptions.DEFAULT.eager(true),
              () -> {
                scope.join();
                return 1;
              });
      scope.join();
      assertThat(child.failure())
          .isInstanceOf(IllegalStateException.class)
          .hasMessageContaining("must be joined by it");
    }
  }

  @Test
  void aTaskThatAsksForItsOwnResultOrAnAncestorsIsToldSo() {
    AtomicReference<@Nullable Fork<Object>> mine = new AtomicReference<>();
    Completion.Source<Integer> asked = Completion.source();
    asTask(
        "outer",
        () -> {
          try (TaskScope<Object> scope = runtime.scope()) {
            mine.set(
                scope.fork(
                    () -> {
                      asked.completion().await();
                      assertSelfWait(() -> mine.get().get(), "result");
                      try (TaskScope<Object> inner = runtime.scope()) {
                        inner.fork(
                            () -> {
                              assertSelfWait(() -> mine.get().get(), "result");
                              return 0;
                            });
                        inner.join();
                      }
                      return 0;
                    }));
            assertThatIllegalStateException()
                .isThrownBy(() -> mine.get().get())
                .withMessageContaining("still running: join");
            asked.complete(1);
            scope.join();
          }
          return null;
        });
  }

  private static void assertSelfWait(Runnable wait, String what) {
    assertThatIllegalStateException()
        .isThrownBy(wait::run)
        .withMessageContaining(what)
        .withMessageContaining("it would wait for itself");
  }

  @Test
  void aCallThatAwaitsItselfOrWhoWaitsForItIsToldSo() {
    Owner owner = runtime.owner("calls", Role.OWNER);
    Completion.Source<Completion<Integer>> given = Completion.source();
    Completion<Integer> call =
        owner.call(
            () -> {
              Completion<Integer> own = given.completion().await();
              assertSelfWait(own::await, "awaits task 'call-calls'");
              assertSelfWait(own.thenApply(i -> i)::await, "awaits task 'call-calls'");
              try (TaskScope<Integer> scope = runtime.scope()) {
                scope.fork(
                    () -> {
                      assertSelfWait(own::await, "awaits task 'call-calls'");
                      return 1;
                    });
                return scope.join().getFirst();
              }
            });
    given.complete(call);
    assertThat(call.await()).isEqualTo(1);
  }

  @Test
  void aCallMayAwaitTheCallThatMadeItAndDidNotWait() {
    Owner first = runtime.owner("first", Role.OWNER);
    Owner second = runtime.owner("second", Role.OWNER);
    Completion.Source<Completion<Integer>> given = Completion.source();
    Completion.Source<Completion<Integer>> inner = Completion.source();
    Completion<Integer> outer =
        first.call(
            () -> {
              inner.complete(second.call(() -> given.completion().await().await()));
              return 8;
            });
    given.complete(outer);
    assertThat(inner.completion().await().await()).isEqualTo(8);
  }

  // --- nested pools -----------------------------------------------------------------------------

  @Test
  void aTaskOpensScopesOfARuntimeWithOtherCarriers() {
    try (TaskRuntime jdk = TaskRuntime.open(TaskConfig.DEFAULT.carriers(CarrierMode.JDK))) {
      nested(runtime, jdk);
      nested(jdk, runtime);
    }
  }

  private void nested(TaskRuntime outer, TaskRuntime inner) {
    Guard guard = new Guard();
    Strand strand = inner.strand("nested");
    try (TaskScope<Integer> scope = outer.scope()) {
      for (int i = 0; i < 20; i++) {
        scope.fork(
            ForkOptions.DEFAULT.eager(i % 2 == 0),
            () -> {
              try (TaskScope<Integer> below = inner.scope()) {
                Guard family = new Guard();
                below.fork(WITH_PARENT, () -> guardedTwice(family));
                below.fork(WITH_PARENT, () -> guardedTwice(family));
                family.inside();
                below.fork(() -> 1);
                below.fork(in(strand), () -> guardedTwice(guard));
                below.fork(INITIAL, () -> 1);
                return below.join().size();
              }
            });
      }
      assertThat(scope.join()).hasSize(20).containsOnly(5);
    }
    assertThat(new HashSet<>(List.of(guard.entered.get()))).containsExactly(40);
  }
}
