package io.fairlead.task;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatExceptionOfType;
import static org.assertj.core.api.Assertions.assertThatIllegalArgumentException;
import static org.assertj.core.api.Assertions.assertThatIllegalStateException;
import static org.assertj.core.api.Assertions.catchThrowable;

import io.fairlead.fault.EngineException;
import io.fairlead.fault.Mutant;
import io.fairlead.fault.TaskCancelledException;
import io.fairlead.fault.TaskFailedException;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

@Timeout(60)
class OwnerTest {
  private TaskRuntime runtime;

  @BeforeEach
  void open() {
    runtime = TaskRuntime.open(TaskConfig.DEFAULT.ownerQueue(4));
  }

  @AfterEach
  void close() {
    runtime.close();
    assertThat(Thread.interrupted()).as("no interrupt is left behind").isFalse();
  }

  @Test
  void runsCommandsInOrderOnItsThread() {
    Owner owner = runtime.owner("o", Role.OWNER);
    List<String> seen = new CopyOnWriteArrayList<>();
    for (int i = 0; i < 4; i++) {
      String value = "c" + i;
      owner.submit(() -> seen.add(value + Thread.currentThread().getName()));
    }
    owner.close();
    assertThat(seen)
        .containsExactly("c0fairlead-o", "c1fairlead-o", "c2fairlead-o", "c3fairlead-o");
    assertThat(owner.isOwnerThread()).isFalse();
  }

  @Test
  void aFullQueueRefusesAndCounts() {
    Owner owner = runtime.owner("o", Role.OWNER);
    CountDownLatch hold = hold(owner);
    for (int i = 0; i < 4; i++) {
      assertThat(owner.trySubmit(() -> {})).isTrue();
    }
    assertThat(owner.trySubmit(() -> {})).isFalse();
    assertThat(owner.refused()).isEqualTo(1);
    assertThat(owner.queued()).isEqualTo(4);
    assertThat(owner.tryCall(() -> 1).cause())
        .isInstanceOf(EngineException.class)
        .hasMessageContaining("queue is full");
    hold.countDown();
  }

  @Test
  void callsWaitForRoomAndAllAreMade() {
    Owner owner = runtime.owner("o", Role.OWNER);
    CountDownLatch hold = hold(owner);
    AtomicInteger ran = new AtomicInteger();
    try (TaskScope<Integer> scope = runtime.scope()) {
      for (int i = 0; i < 500; i++) {
        scope.fork(() -> owner.call(ran::incrementAndGet).await());
      }
      Eventually.holds("the queue is full", () -> owner.queued() == 4);
      hold.countDown();
      assertThat(scope.join()).hasSize(500);
    }
    assertThat(ran).hasValue(500);
  }

  @Test
  void aCancelledCallerStopsWaitingForRoomAndLosesNobodysWake() {
    Owner owner = runtime.owner("o", Role.OWNER);
    CountDownLatch hold = hold(owner);
    for (int i = 0; i < 4; i++) {
      owner.trySubmit(() -> {});
    }
    AtomicInteger ran = new AtomicInteger();
    try (TaskScope<Integer> scope = runtime.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
      List<Fork<Integer>> forks = new ArrayList<>();
      for (int i = 0; i < 200; i++) {
        forks.add(scope.fork(() -> owner.call(ran::incrementAndGet).await()));
      }
      for (int i = 0; i < 200; i += 2) {
        forks.get(i).task().cancel(null);
      }
      hold.countDown();
      scope.join();
      for (int i = 1; i < 200; i += 2) {
        assertThat(forks.get(i).state()).isEqualTo(Fork.State.SUCCEEDED);
      }
    }
    assertThat(ran.get()).isGreaterThanOrEqualTo(100);
  }

  @Test
  void callGivesValuesAndFailuresAndRunsInATask() {
    Owner owner = runtime.owner("o", Role.OWNER);
    assertThat(owner.call(() -> Role.current() + Task.current().name()).await())
        .isEqualTo("OWNERcall-o");
    IOException cause = new IOException();
    Completion<Integer> failed =
        owner.call(
            () -> {
              throw cause;
            });
    assertThatExceptionOfType(TaskFailedException.class).isThrownBy(failed::await).withCause(cause);
    // inline on its own thread: else it would wait for itself
    assertThat(owner.call(() -> owner.call(() -> 7).getNow()).await()).isEqualTo(7);
  }

  @Test
  void aCancelledCallDoesNotBegin() {
    Owner owner = runtime.owner("o", Role.OWNER);
    CountDownLatch hold = hold(owner);
    AtomicBoolean ran = new AtomicBoolean();
    Completion<Integer> call =
        owner.call(
            () -> {
              ran.set(true);
              return 1;
            });
    assertThat(call.cancel()).isTrue();
    hold.countDown();
    owner.close();
    assertThat(ran).isFalse();
    assertThatExceptionOfType(TaskCancelledException.class).isThrownBy(call::await);
  }

  @Test
  void cancellingACallReachesItsBody() {
    Owner owner = runtime.owner("o", Role.OWNER);
    CountDownLatch began = new CountDownLatch(1);
    AtomicReference<Throwable> seen = new AtomicReference<>();
    Completion<Integer> call =
        owner.call(
            () -> {
              began.countDown();
              try {
                return Completion.<Integer>source().completion().await();
              } catch (TaskCancelledException e) {
                seen.set(e);
                throw e;
              }
            });
    TaskScopeTest.awaitQuietly(began);
    call.cancel();
    assertThat(owner.call(() -> 1).await()).as("the owner goes on").isEqualTo(1);
    assertThat(seen.get()).isInstanceOf(TaskCancelledException.class);
  }

  @Test
  void aThrowingCommandDoesNotEndIt() {
    Owner owner = runtime.owner("o", Role.OWNER);
    owner.trySubmit(
        () -> {
          throw new IllegalArgumentException("a bad command, on purpose");
        });
    owner.trySubmit(() -> Thread.currentThread().interrupt());
    owner.addSource(
        new PollSource() {
          private boolean thrown;

          @Override
          public int poll() {
            if (!thrown) {
              thrown = true;
              throw new IllegalArgumentException("a bad source, on purpose");
            }
            return 0;
          }

          @Override
          public boolean hasPending() {
            return false;
          }
        });
    assertThat(owner.call(() -> Thread.currentThread().isInterrupted()).await()).isFalse();
  }

  // --- closing

  @Test
  void closeDoesWhatIsQueuedAndThenTakesNothing() {
    Owner owner = runtime.owner("o", Role.OWNER);
    CountDownLatch hold = hold(owner);
    AtomicInteger ran = new AtomicInteger();
    List<Completion<Integer>> calls = new ArrayList<>();
    for (int i = 0; i < 4; i++) {
      calls.add(owner.call(ran::incrementAndGet));
    }
    Thread closer = Thread.ofVirtual().start(owner::close);
    Eventually.waits(closer);
    hold.countDown();
    for (Completion<Integer> call : calls) {
      assertThat(call.await()).isBetween(1, 4);
    }
    Eventually.holds("closed", () -> !closer.isAlive());
    owner.close();
    assertThatIllegalStateException()
        .isThrownBy(() -> owner.trySubmit(() -> {}))
        .withMessageContaining("'o' is closed");
    assertThatIllegalStateException().isThrownBy(() -> owner.call(() -> 1));
  }

  @Test
  void closeFailsThoseThatWaitForRoom() {
    Owner owner = runtime.owner("o", Role.OWNER);
    CountDownLatch hold = hold(owner);
    for (int i = 0; i < 4; i++) {
      owner.trySubmit(() -> {});
    }
    try (TaskScope<Integer> scope = runtime.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
      List<Fork<Integer>> forks = new ArrayList<>();
      List<Thread> threads = new CopyOnWriteArrayList<>();
      for (int i = 0; i < 20; i++) {
        forks.add(
            scope.fork(
                () -> {
                  threads.add(Thread.currentThread());
                  return owner.call(() -> 1).await();
                }));
      }
      Eventually.holds("all wait", () -> threads.size() == 20);
      threads.forEach(Eventually::waits);
      Thread closer = Thread.ofVirtual().start(owner::close);
      Eventually.waits(closer);
      hold.countDown();
      assertThat(scope.join()).as("none is left hanging").hasSizeBetween(0, 20);
      assertThat(forks)
          .allMatch(
              f ->
                  f.state() == Fork.State.SUCCEEDED
                      || f.failure() instanceof IllegalStateException);
      Eventually.holds("closed", () -> !closer.isAlive());
    }
  }

  @Test
  void mayCloseItself() {
    Owner owner = runtime.owner("o", Role.OWNER);
    owner.trySubmit(owner::close);
    owner.close();
    assertThat(owner.ended().isDone()).isTrue();
  }

  // --- retiring

  private static final class Node extends Retired {
    final AtomicInteger released = new AtomicInteger();
    final List<Node> log;

    Node(List<Node> log) {
      this.log = log;
    }

    @Override
    protected void release() {
      released.incrementAndGet();
      log.add(this);
    }
  }

  @Test
  void releasesWhatIsRetiredOnceAndInOrder() {
    Owner owner = runtime.owner("o", Role.OWNER);
    CountDownLatch hold = hold(owner);
    List<Node> log = new CopyOnWriteArrayList<>();
    List<Node> nodes = new ArrayList<>();
    for (int i = 0; i < 1_000; i++) {
      Node node = new Node(log);
      nodes.add(node);
      owner.retire(node);
      owner.retire(node);
    }
    hold.countDown();
    owner.close();
    assertThat(log).isEqualTo(nodes);
    assertThat(nodes).allMatch(n -> n.released.get() == 1);
    owner.retire(new Node(log));
    assertThat(owner.retiredLate()).isEqualTo(1);
    assertThat(log).hasSize(1_000);
  }

  @Test
  void aThrowingReleaseDoesNotStopTheOthers() {
    Owner owner = runtime.owner("o", Role.OWNER);
    owner.retire(
        new Retired() {
          @Override
          protected void release() {
            throw new IllegalArgumentException("a bad release, on purpose");
          }
        });
    Node node = new Node(new CopyOnWriteArrayList<>());
    owner.retire(node);
    Eventually.holds("released", () -> node.released.get() == 1);
  }

  // --- polling and the doorbell

  @Test
  void pollsItsSourcesUntilTheyAreRemoved() {
    Owner owner = runtime.owner("o", Role.OWNER);
    AtomicInteger polls = new AtomicInteger();
    PollSource source =
        () -> {
          assertThat(owner.isOwnerThread()).isTrue();
          polls.incrementAndGet();
          return 0;
        };
    owner.addSource(source);
    Eventually.holds("polled, also after long idleness", () -> polls.get() > 1_000);
    owner.removeSource(source);
    owner.call(() -> 1).await();
    int after = polls.get();
    assertThat(owner.call(() -> 2).await()).isEqualTo(2);
    assertThat(polls.get()).isEqualTo(after);
  }

  @Test
  void sleepsWhileNothingIsPendingAndWakesByTheBell() {
    Owner owner = runtime.owner("o", Role.OWNER);
    AtomicBoolean pending = new AtomicBoolean();
    AtomicInteger found = new AtomicInteger();
    AtomicReference<Thread> thread = new AtomicReference<>();
    owner.addSource(
        new PollSource() {
          @Override
          public int poll() {
            thread.set(Thread.currentThread());
            return pending.getAndSet(false) ? found.incrementAndGet() : 0;
          }

          @Override
          public boolean hasPending() {
            return pending.get();
          }
        });
    for (int i = 1; i <= 5; i++) {
      Eventually.holds("polled", () -> thread.get() != null);
      Eventually.holds(
          "sleeps without a time limit", () -> thread.get().getState() == Thread.State.WAITING);
      pending.set(true);
      owner.ring();
      int expected = i;
      Eventually.holds("found", () -> found.get() == expected);
    }
  }

  @Test
  void anOwnerThatWaitsPollsItsOwnSources() {
    Owner owner = runtime.owner("o", Role.OWNER);
    Completion.Source<Integer> source = Completion.source();
    AtomicBoolean waiting = new AtomicBoolean();
    owner.addSource(() -> waiting.get() && source.complete(5) ? 1 : 0);
    int value =
        owner
            .call(
                () -> {
                  waiting.set(true);
                  return source.completion().await();
                })
            .await();
    assertThat(value).isEqualTo(5);
  }

  @Test
  void noWakeIsLost() {
    assertThat(findsLostWake(20_000, Duration.ofSeconds(20))).isFalse();
  }

  @Test
  void theTestAboveFindsALostWake() {
    try (Mutant.Handle _ = Mutant.enable("owner.no-look-before-park")) {
      assertThat(findsLostWake(Integer.MAX_VALUE, Duration.ofSeconds(50))).isTrue();
    }
  }

  /**
   * Ping-pong with an owner that parks as soon as it is idle, so many times or so long: every other
   * command comes between the owner's look at its queue and its park, as one from another thread
   * might, wherever threads run at once. True once the owner sleeps without a time limit while a
   * command lies in its queue, and does not wake.
   */
  private static boolean findsLostWake(int count, Duration bound) {
    TaskConfig eager = new TaskConfig(WaitMode.SPIN, 4, 0, 0, 1_000);
    long end = System.nanoTime() + bound.toNanos();
    try (TaskRuntime own = TaskRuntime.open(eager)) {
      Owner owner = own.owner("eager", Role.OWNER);
      Thread thread = owner.call(Thread::currentThread).await();
      AtomicInteger done = new AtomicInteger();
      LateCommand late = new LateCommand(owner, done::incrementAndGet);
      owner.addSource(late);
      try {
        for (int i = 1; i <= count && System.nanoTime() - end < 0; i++) {
          int expected = i;
          if (i % 2 == 0) {
            late.arm();
          } else {
            owner.trySubmit(done::incrementAndGet);
          }
          if (!comes(() -> done.get() == expected) && asleep(owner, thread)) {
            return true;
          }
        }
        return false;
      } finally {
        endForced(owner);
      }
    }
  }

  /** Submits a command when its owner has looked at the queue and not parked yet. */
  private static final class LateCommand implements PollSource {
    private final Owner owner;
    private final Runnable command;
    private final AtomicBoolean armed = new AtomicBoolean();

    LateCommand(Owner owner, Runnable command) {
      this.owner = owner;
      this.command = command;
    }

    void arm() {
      armed.set(true);
      owner.ring();
    }

    @Override
    public int poll() {
      if (armed.compareAndSet(true, false)) {
        owner.trySubmit(command);
      }
      return 0;
    }

    @Override
    public boolean hasPending() {
      return armed.get();
    }
  }

  private static boolean comes(java.util.function.BooleanSupplier condition) {
    for (int i = 0; i < 1_000_000; i++) { // some 10 ms at least: far more than a hand-over
      if (condition.getAsBoolean()) {
        return true;
      }
      Thread.onSpinWait();
    }
    // who was woken may wait for a processor, and looks as if it slept meanwhile
    return Eventually.holdsWithin(Duration.ofSeconds(5), condition);
  }

  private static boolean asleep(Owner owner, Thread thread) {
    return owner.queued() > 0 && thread.getState() == Thread.State.WAITING;
  }

  /** A lost wake leaves the owner asleep: unpark it until it has ended. */
  private static void endForced(Owner owner) {
    Thread closer = Thread.ofVirtual().start(owner::close);
    Eventually.holds(
        "closed",
        () -> {
          owner.ringForced();
          return !closer.isAlive();
        });
  }

  @Test
  void anOwnersRoleIsOneOfThree() {
    assertThatIllegalArgumentException()
        .isThrownBy(() -> runtime.owner("o", Role.CLEANER))
        .withMessageContaining("DEVICE_MANAGER");
  }

  private static CountDownLatch hold(Owner owner) {
    CountDownLatch hold = new CountDownLatch(1);
    CountDownLatch held = new CountDownLatch(1);
    owner.trySubmit(
        () -> {
          held.countDown();
          TaskScopeTest.awaitQuietly(hold);
        });
    TaskScopeTest.awaitQuietly(held);
    return hold;
  }

  @Test
  void aSourceThatRingsWhileItsOwnerWaitsIsPolled() {
    Owner owner = runtime.owner("o", Role.OWNER);
    Completion.Source<String> source = Completion.source();
    AtomicBoolean pending = new AtomicBoolean();
    AtomicBoolean waits = new AtomicBoolean();
    owner.addSource(
        new PollSource() {
          @Override
          public int poll() {
            return pending.get() && source.complete("found") ? 1 : 0;
          }

          @Override
          public boolean hasPending() {
            return pending.get();
          }
        });
    AtomicReference<Thread> thread = new AtomicReference<>();
    Completion<String> call =
        owner.call(
            () -> {
              thread.set(Thread.currentThread());
              waits.set(true);
              return source.completion().await();
            });
    try {
      Eventually.holds(
          "the owner waits with nothing to poll",
          () -> waits.get() && thread.get().getState() == Thread.State.WAITING);
      pending.set(true);
      owner.ring();
      assertThat(call.await(Duration.ofSeconds(20))).isEqualTo("found");
    } finally {
      source.complete("not found"); // or a failure would be a hang
    }
  }

  // --- sources that park for a lock, and so use up the unpark that was meant for the owner

  /** Where a source is asked while its owner goes to sleep. */
  private enum Asked {
    POLL,
    HAS_PENDING
  }

  /** Where tasks look themselves an owner that polls on would take their processor. */
  @Test
  void itNapsBetweenFindsWhileTasksLookAndSearchesOnceItIsRung() {
    Owner owner = runtime.owner("o", Role.OWNER);
    LookedFor source = new LookedFor();
    owner.addSource(source);
    Eventually.holds("it searches between finds", () -> source.polls.get() > 1_000);
    source.others = true;
    int before = source.naps.get();
    Eventually.holds("it naps", () -> source.naps.get() > before + 20);
    source.finds = false;
    int extra = source.polls.get() - source.naps.get();
    Eventually.holds(
        "it searches",
        () -> {
          owner.ring(); // one that it is awake for passes unheard
          return source.polls.get() - source.naps.get() > extra + 100;
        });
  }

  /** Found in every other poll. */
  private static final class LookedFor implements PollSource {
    private final AtomicInteger polls = new AtomicInteger();
    private final AtomicInteger naps = new AtomicInteger();
    private volatile boolean others;
    private volatile boolean finds = true;

    @Override
    public int poll() {
      int number = polls.incrementAndGet();
      return finds ? number % 2 : 0;
    }

    @Override
    public boolean isLookedFor() {
      return others;
    }

    @Override
    public long napNanosMax() {
      naps.incrementAndGet();
      return 100_000;
    }
  }

  /** Once armed: wakes its owner from within, and then parks, as for a contended lock. */
  private static final class Greedy implements PollSource {
    private final Asked where;
    private final Runnable wake;
    private final AtomicBoolean armed = new AtomicBoolean();
    private final AtomicBoolean woke = new AtomicBoolean();

    Greedy(Asked where, Runnable wake) {
      this.where = where;
      this.wake = wake;
    }

    @Override
    public int poll() {
      wakeAndPark(Asked.POLL);
      return 0;
    }

    @Override
    public boolean hasPending() {
      wakeAndPark(Asked.HAS_PENDING);
      return false;
    }

    /** Whether it sleeps after the wake. It may do so for good reason once what woke it is done. */
    boolean isSleptOver(Thread thread) {
      return woke.get() && thread.getState() == Thread.State.WAITING;
    }

    private void wakeAndPark(Asked here) {
      if (here == where && armed.compareAndSet(true, false)) {
        wake.run();
        woke.set(true);
        LockSupport.parkNanos(1); // returns at once, and the permit is gone
      }
    }
  }

  @ParameterizedTest
  @EnumSource(Asked.class)
  void aWaitIsNotSleptOverWhereASourceUsesUpItsUnpark(Asked where) {
    assertThat(waitIsSleptOver(where)).isFalse();
    try (Mutant.Handle _ = Mutant.enable("owner.trusts-the-permit")) {
      assertThat(waitIsSleptOver(where)).as("the test finds it").isTrue();
    }
  }

  private boolean waitIsSleptOver(Asked where) {
    Owner owner = runtime.owner("o", Role.OWNER);
    Completion.Source<Integer> awaited = Completion.source();
    Greedy source = new Greedy(where, () -> awaited.complete(5));
    owner.addSource(source);
    Thread thread = owner.call(Thread::currentThread).await();
    Completion<Integer> call =
        owner.call(
            () -> {
              source.armed.set(true);
              return awaited.completion().await();
            });
    Eventually.holds("it ends or sleeps", () -> call.isDone() || source.isSleptOver(thread));
    boolean slept = !call.isDone();
    endForced(owner);
    assertThat(call.await()).isEqualTo(5);
    return slept;
  }

  @Test
  void aCommandIsNotSleptOverWhereASourceUsesUpItsUnpark() {
    assertThat(commandIsSleptOver()).isFalse();
    try (Mutant.Handle _ = Mutant.enable("owner.trusts-the-permit")) {
      assertThat(commandIsSleptOver()).as("the test finds it").isTrue();
    }
  }

  private boolean commandIsSleptOver() {
    Owner owner = runtime.owner("o", Role.OWNER);
    AtomicBoolean ran = new AtomicBoolean();
    Greedy source = new Greedy(Asked.HAS_PENDING, () -> owner.trySubmit(() -> ran.set(true)));
    Thread thread = owner.call(Thread::currentThread).await();
    owner.addSource(source);
    Eventually.holds("it sleeps", () -> thread.getState() == Thread.State.WAITING);
    source.armed.set(true);
    owner.ring();
    Eventually.holds("it runs or sleeps", () -> ran.get() || source.isSleptOver(thread));
    boolean slept = !ran.get();
    endForced(owner);
    assertThat(ran).isTrue();
    return slept;
  }

  // --- waits that would never end

  @Test
  void aCommandThatAwaitsALaterCommandOfItsOwnerIsTold() {
    Owner owner = runtime.owner("o", Role.OWNER);
    AtomicReference<Completion<Integer>> later = new AtomicReference<>();
    CountDownLatch queued = new CountDownLatch(1);
    Completion<Integer> command =
        owner.call(
            () -> {
              TaskScopeTest.awaitQuietly(queued);
              return later.get().await();
            });
    later.set(owner.call(() -> 7));
    queued.countDown();
    Eventually.holds("it was told", command::isDone);
    assertThat(command.cause())
        .isInstanceOf(IllegalStateException.class)
        .hasMessageContaining("would never end")
        .hasMessageContaining("on the thread of owner 'o'")
        .hasMessageContaining("onDone");
    assertThat(later.get().await()).isEqualTo(7);
  }

  @Test
  void soIsOneThatAwaitsAllOfSomethingButNotAnyOfIt() {
    Owner owner = runtime.owner("o", Role.OWNER);
    AtomicReference<Completion<Integer>> later = new AtomicReference<>();
    Completion.Source<Integer> other = Completion.source();
    CountDownLatch queued = new CountDownLatch(1);
    Completion<Integer> all =
        owner.call(
            () -> {
              TaskScopeTest.awaitQuietly(queued);
              return Completion.all(List.of(other.completion(), later.get())).await().size();
            });
    Completion<Integer> any =
        owner.call(() -> Completion.any(List.of(other.completion(), later.get())).await());
    later.set(owner.call(() -> 7));
    queued.countDown();
    try {
      Eventually.holds("it was told", all::isDone);
      assertThat(all.cause()).isInstanceOf(IllegalStateException.class);
    } finally {
      other.complete(3); // or a failure would be a hang
    }
    assertThat(any.await()).isEqualTo(3);
  }

  @Test
  void ownersThatCallEachOtherAreTold() {
    Owner one = runtime.owner("one", Role.OWNER);
    Owner two = runtime.owner("two", Role.OWNER);
    for (int round = 0; round < 50; round++) {
      CountDownLatch both = new CountDownLatch(2);
      List<Completion<Integer>> calls =
          List.of(one.call(calling(two, both)), two.call(calling(one, both)));
      calls.forEach(call -> Eventually.holds("it ends", call::isDone));
      assertThat(calls)
          .filteredOn(call -> call.state() == Completion.State.FAILED)
          .singleElement()
          .satisfies(
              failed ->
                  assertThat(failed.cause())
                      .isInstanceOf(IllegalStateException.class)
                      .hasMessageContainingAll("owner 'one'", "owner 'two'"));
    }
    assertThat(WaitGraph.size()).isZero();
  }

  private static TaskBody<Integer> calling(Owner other, CountDownLatch both) {
    return () -> {
      both.countDown();
      TaskScopeTest.awaitQuietly(both);
      return other.<Integer>callLent(() -> 1);
    };
  }

  @Test
  void aLentTaskThatJoinsAChildBoundToThatThreadIsTold() {
    Owner owner = runtime.owner("o", Role.OWNER);
    runtime.<Void>enter(
        "t",
        0,
        () -> {
          try (TaskScope<Integer> scope = runtime.scope()) {
            CountDownLatch hold = hold(owner);
            assertThatIllegalStateException()
                .isThrownBy(
                    () -> {
                      LentCall<Integer> call =
                          new LentCall<>(
                              owner,
                              Task.current(),
                              Thread.currentThread(),
                              () -> scope.join().size());
                      owner.submit(call);
                      scope.fork(
                          ForkOptions.DEFAULT.placement(new Placement.Bound(owner)), () -> 1);
                      hold.countDown(); // now the call, and the child behind it
                      call.await();
                    })
                .withMessageContaining("Join and close it outside of the call");
            assertThat(scope.join()).containsExactly(1);
          }
          return null;
        });
  }

  /** Its wait may begin after that of the body, which then has to fail: both act for one task. */
  @Test
  void aLentTaskIsWaitedForWhateverItsBodyWaitsFor() {
    Owner home = runtime.owner("home", Role.OWNER);
    Owner away = runtime.owner("away", Role.OWNER);
    AtomicReference<@Nullable Throwable> inBody = new AtomicReference<>();
    Completion<String> command =
        home.call(
            () -> {
              LentCall<String> call =
                  new LentCall<>(
                      away,
                      Task.current(),
                      Thread.currentThread(),
                      () -> {
                        inBody.set(catchThrowable(() -> home.call(() -> 1).await()));
                        return "the body's end";
                      });
              away.submit(call);
              Eventually.holds("the body waits", () -> WaitGraph.size() == 1);
              return call.await();
            });
    assertThat(command.await()).isEqualTo("the body's end");
    assertThat(inBody.get())
        .isInstanceOf(IllegalStateException.class)
        .hasMessageContainingAll("would never end", "owner 'home'", "owner 'away'");
  }

  /** Something new beside what is old: it searches again, as for a wait that has just begun. */
  @Test
  void aRingWakesThePollerFromItsNap() {
    AtomicInteger looks = new AtomicInteger();
    TaskConfig config = TaskConfig.DEFAULT.carriers(CarrierMode.JDK);
    try (TaskRuntime jdk = TaskRuntime.open(config.pollParkNanosMax(60_000_000_000L))) {
      jdk.register(
          () -> {
            looks.incrementAndGet();
            return 0;
          });
      Eventually.holds(
          "the poller naps for long",
          () -> {
            int before = looks.get();
            LockSupport.parkNanos(2_000_000);
            return looks.get() == before;
          });
      int before = looks.get();
      jdk.ringPoller();
      Eventually.holds("it looks often again", () -> looks.get() > before + 20);
    }
  }

  /** What is handed to a source that only naps does not wait for the nap to end. */
  @Test
  void anOwnerThatIsHandedSomethingAfterItsPollDoesNotNap() {
    Owner owner = eagerOwner();
    Handed source = new Handed(owner);
    owner.addSource(source);
    Eventually.holds("handed over often", () -> source.done.get() > 200);
    assertThat(source.naps.get()).as("it naps too").isPositive();
    assertThat(source.sleptOver.get()).isZero();
  }

  @Test
  void theTestAboveFindsANapOverWhatWasHandedOver() {
    Owner owner = eagerOwner();
    Handed source = new Handed(owner);
    try (Mutant.Handle _ = Mutant.enable("owner.no-look-at-ready")) {
      owner.addSource(source);
      Eventually.holds("slept over", () -> source.sleptOver.get() > 0);
    }
  }

  /** Every other poll hands something over when it has looked: no bell has been announced yet. */
  private static final class Handed implements PollSource {
    private final Owner owner;
    private final AtomicBoolean ready = new AtomicBoolean();
    private final AtomicInteger polls = new AtomicInteger();
    private final AtomicInteger done = new AtomicInteger();
    private final AtomicInteger naps = new AtomicInteger();
    private final AtomicInteger sleptOver = new AtomicInteger();

    private Handed(Owner owner) {
      this.owner = owner;
    }

    @Override
    public int poll() {
      if (ready.compareAndSet(true, false)) {
        done.incrementAndGet();
      } else if (polls.incrementAndGet() % 2 == 0) {
        ready.set(true);
        owner.ring();
      }
      return 0;
    }

    @Override
    public boolean isReady() {
      return ready.get();
    }

    @Override
    public long napNanosMax() {
      naps.incrementAndGet();
      sleptOver.addAndGet(ready.get() ? 1 : 0);
      return Long.MAX_VALUE;
    }
  }

  /** Without its bound, naps that grow by a fiftieth would let it look 600 times a minute. */
  @Test
  void anOwnerNapsNoLongerThanItsSourceSays() {
    Owner owner = eagerOwner();
    AtomicInteger looks = new AtomicInteger();
    owner.addSource(
        new PollSource() {
          @Override
          public int poll() {
            return looks.incrementAndGet() < 0 ? 1 : 0;
          }

          @Override
          public long napNanosMax() {
            return 20_000;
          }
        });
    Eventually.holds("it looks often, however long it waits", () -> looks.get() > 1_500);
  }

  private Owner eagerOwner() {
    runtime.close();
    runtime = TaskRuntime.open(new TaskConfig(WaitMode.SPIN, 4, 0, 0, 60_000_000_000L));
    return runtime.owner("eager", Role.OWNER);
  }

  @Test
  void longTurnsOfAffineTasksAreCounted() {
    if (runtime.carriers().mode() == CarrierMode.JDK) {
      return; // refused there: OwnerAffineTest
    }
    Owner owner = runtime.owner("o", Role.OWNER);
    // one that lost its processor is long, too
    Eventually.holds("a short one is not", () -> longTurns(owner, () -> 1) == 0);
    assertThat(longTurns(owner, OwnerTest::computeTooLong)).isEqualTo(1);
    assertThat(owner.turns().longestNanos()).isGreaterThanOrEqualTo(Owner.LONG_TURN_NANOS);
    long before = owner.turns().longCount();
    owner.call(OwnerTest::computeTooLong).await();
    assertThat(owner.turns().longCount())
        .as("commands may take as long as they need")
        .isEqualTo(before);
  }

  /** How many of it were counted. */
  private static long longTurns(Owner owner, TaskBody<Integer> body) {
    long before = owner.turns().longCount();
    owner.affine(body).await();
    owner.call(() -> 1).await(); // so that the turn is over, and counted
    return owner.turns().longCount() - before;
  }

  @SuppressWarnings("BusyWait") // it is to hold its thread up
  private static int computeTooLong() {
    long end = System.nanoTime() + Owner.LONG_TURN_NANOS;
    while (System.nanoTime() - end < 0) {
      Thread.onSpinWait();
    }
    return 1;
  }
}
