package io.fairlead.task;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatIllegalStateException;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fairlead.fault.DeadlineExceededException;
import io.fairlead.fault.Mutant;
import java.lang.reflect.Field;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.ReentrantLock;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Whoever could wait for ever if nobody came: somebody comes. */
@Timeout(60)
class RunnersTest {
  private static final int ATTEMPTS = 10;
  private TaskRuntime runtime;

  @BeforeEach
  void open() {
    runtime = TaskRuntime.open(TaskConfig.DEFAULT, Stealing.MIXED);
  }

  @AfterEach
  void close() {
    runtime.close();
    Eventually.holds("runners and deques are gone", () -> runtime.runners().registered() == 0);
  }

  private <T> T inTask(TaskBody<T> body) {
    try (TaskScope<T> scope = runtime.scope()) {
      scope.fork(body);
      return scope.join().getFirst();
    }
  }

  @Test
  void aParentThatBlocksElsewhereIsHelped() {
    forkAndBlock();
  }

  private void forkAndBlock() {
    inTask(
        () -> {
          CountDownLatch ran = new CountDownLatch(1);
          try (TaskScope<Integer> scope = runtime.scope()) {
            scope.fork(
                () -> {
                  ran.countDown();
                  return 1;
                });
            ran.await();
            return scope.join();
          }
        });
  }

  @Test
  void aParentThatComputesIsHelped() {
    assumeTrue(
        Runtime.getRuntime().availableProcessors() > 1, "nobody can help: there is one processor");
    inTask(
        () -> {
          AtomicBoolean ran = new AtomicBoolean();
          try (TaskScope<Boolean> scope = runtime.scope()) {
            scope.fork(() -> ran.getAndSet(true));
            while (!ran.get()) {
              Thread.onSpinWait();
            }
            return scope.join();
          }
        });
  }

  @Test
  void anEnteredThreadsChildrenAreTakenToo() {
    runtime.<Void>enter(
        "guest",
        0,
        () -> {
          CountDownLatch ran = new CountDownLatch(1);
          try (TaskScope<Boolean> scope = runtime.scope()) {
            scope.fork(
                () -> {
                  ran.countDown();
                  return Thread.currentThread().isVirtual();
                });
            ran.await();
            assertThat(scope.join()).containsExactly(true);
          }
          return null;
        });
  }

  @Test
  void siblingsThatWaitForEachOtherAllBegin() {
    forkSiblings();
  }

  private void forkSiblings() {
    inTask(
        () -> {
          CyclicBarrier all = new CyclicBarrier(100);
          try (TaskScope<Integer> scope = runtime.scope()) {
            for (int i = 0; i < 100; i++) {
              scope.fork(all::await);
            }
            assertThat(scope.join()).hasSize(100).doesNotHaveDuplicates();
          }
          return true;
        });
  }

  @Test
  void framesWhoseTakersAreBlockedDoNotBlockOthers() {
    inTask(
        () -> {
          CountDownLatch all = new CountDownLatch(20);
          LongFork waits =
              (forks, n) -> {
                all.countDown();
                TaskScopeTest.awaitQuietly(all);
                return n;
              };
          try (TaskScope<Long> scope = runtime.scope()) {
            long sum =
                scope.forkJoin(
                    (forks, n) -> {
                      LongFrame[] frames = new LongFrame[20];
                      for (int i = 0; i < 20; i++) {
                        frames[i] = forks.fork(waits, i);
                      }
                      long total = 0;
                      for (int i = 19; i >= 0; i--) {
                        total += forks.join(frames[i]);
                      }
                      return total;
                    },
                    0);
            assertThat(sum).isEqualTo(190);
          }
          return true;
        });
  }

  @Test
  void whoeverWaitsHasARunnerComeThoughNobodyWatches() {
    try (Mutant.Handle _ = Mutant.enable("forks.nobody-watches")) {
      inTask(
          () -> {
            for (int i = 0; i < 2_000; i++) {
              forkAndAwait();
            }
            return true;
          });
    }
  }

  private void forkAndAwait() {
    Completion.Source<Integer> begun = Completion.source();
    Completion.Source<Integer> value = Completion.source();
    try (TaskScope<Integer> scope = runtime.scope()) {
      scope.fork(
          () -> {
            begun.complete(1);
            return value.completion().await();
          });
      assertThat(begun.completion().await()).isEqualTo(1);
      value.complete(2);
      assertThat(scope.join()).containsExactly(2);
    }
  }

  @Test
  void ofManyWhoseRunnersBlockAllBeginThoughNobodyWatches() {
    try (Mutant.Handle _ = Mutant.enable("forks.nobody-watches")) {
      for (int i = 0; i < 20; i++) {
        assertThat(begunWithin(Duration.ofSeconds(60))).isTrue();
      }
    }
  }

  @Test
  void theTestAboveFindsARunnerThatSendsNoOther() {
    try (Mutant.Handle _ = Mutant.enable("forks.nobody-watches");
        Mutant.Handle _ = Mutant.enable("forks.one-runner-comes")) {
      assertThat(begunWithin(Duration.ofMillis(100))).isFalse();
    }
  }

  /** Whether a hundred that each wait for all begin while their parent waits. */
  private boolean begunWithin(Duration bound) {
    AtomicInteger missing = new AtomicInteger(100);
    Completion.Source<Integer> all = Completion.source();
    return inTask(
        () -> {
          try (TaskScope<Integer> scope = runtime.scope()) {
            for (int i = 0; i < 100; i++) {
              scope.fork(
                  () -> {
                    if (missing.decrementAndGet() == 0) {
                      all.complete(1);
                    }
                    return all.completion().await();
                  });
            }
            try {
              all.completion().await(bound);
            } catch (DeadlineExceededException late) {
              all.complete(0);
              return false;
            }
            return scope.join().size() == 100;
          }
        });
  }

  @Test
  void closeLetsAllRunnersGo() {
    for (int i = 0; i < 100; i++) {
      TaskRuntime closes = TaskRuntime.open(TaskConfig.DEFAULT, Stealing.MIXED);
      try (TaskScope<Integer> scope = closes.scope()) {
        scope.fork(
            () -> {
              try (TaskScope<Integer> inner = closes.scope()) {
                Completion.Source<Integer> begun = Completion.source();
                inner.fork(() -> begun.complete(1) ? 1 : 0);
                begun.completion().await(); // so that a runner rests just when all is closed
                return inner.join().getFirst();
              }
            });
        scope.join();
      }
      closes.close();
      Eventually.holds("none is left", () -> closes.runners().alive() == 0);
    }
  }

  @Test
  void aForkAfterALongSleepIsSeen() {
    for (int i = 0; i < 5; i++) {
      forkAndBlock();
      Eventually.holds("nothing runs while nothing is forked", () -> runtime.runners().isAsleep());
    }
  }

  @Test
  void runnersThatAreNotNeededLeave() {
    forkSiblings();
    int most = 2 * Runtime.getRuntime().availableProcessors() + 1;
    Eventually.holds("few are kept", () -> runtime.runners().alive() <= most);
  }

  @Test
  void anEagerChildHasAThreadAtOnce() {
    inTask(
        () -> {
          AtomicReference<Thread> thread = new AtomicReference<>();
          try (TaskScope<Boolean> scope = runtime.scope()) {
            Fork<Boolean> fork =
                scope.fork(
                    ForkOptions.DEFAULT.eager(true),
                    () -> {
                      thread.set(Thread.currentThread());
                      return true;
                    });
            assertThat(fork.isLazy()).isFalse();
            assertThat(scope.join()).containsExactly(true);
            assertThat(thread.get()).isNotSameAs(Thread.currentThread());
          }
          return true;
        });
  }

  @Test
  void childrenOfRootAndOfOwnersHaveThreads() {
    Owner owner = runtime.owner("o", Role.OWNER);
    try (TaskScope<Boolean> scope = runtime.scope()) {
      assertThat(scope.fork(() -> true).isLazy()).isFalse();
      scope.fork(
          ForkOptions.DEFAULT.placement(new Placement.Bound(owner)),
          () -> {
            try (TaskScope<Boolean> inner = runtime.scope()) {
              Fork<Boolean> fork = inner.fork(() -> Thread.currentThread().isVirtual());
              return !fork.isLazy() && inner.join().getFirst();
            }
          });
      assertThat(scope.join()).containsExactly(true, true);
    }
  }

  @Test
  void childrenOfAffineTasksHaveThreads() {
    assumeTrue(runtime.carriers().mode() == CarrierMode.OWN, "affine tasks want own carriers");
    Owner owner = runtime.owner("o", Role.OWNER);
    boolean elsewhere =
        owner
            .<Boolean>affine(
                () -> {
                  try (TaskScope<Boolean> scope = runtime.scope()) {
                    Fork<Boolean> fork = scope.fork(owner::isOwnerThread);
                    return !fork.isLazy() && !scope.join().getFirst();
                  }
                })
            .await();
    assertThat(elsewhere).isTrue();
  }

  @Test
  void aTinyPairIsNotTaken() {
    assertThat(takenPairs()).isLessThan(PAIRS / 10);
  }

  @Test
  void theTestAboveFindsAWatcherThatTakesAtFirstSight() {
    assumeTrue(
        Runtime.getRuntime().availableProcessors() > 1, "nobody can take: there is one processor");
    try (Mutant.Handle _ = Mutant.enable("forks.no-throttle")) {
      Eventually.holds("some are taken", () -> takenPairs() > 0);
    }
  }

  private static final int PAIRS = 20_000;

  private int takenPairs() {
    AtomicInteger taken = new AtomicInteger();
    inTask(
        () -> {
          Thread own = Thread.currentThread();
          LongFork fork = (forks, n) -> Thread.currentThread() == own ? 0 : taken.incrementAndGet();
          try (TaskScope<Long> scope = runtime.scope()) {
            scope.forkJoin(
                (forks, n) -> {
                  for (int i = 0; i < PAIRS; i++) {
                    forks.join(forks.fork(fork, i));
                  }
                  return 0;
                },
                0);
          }
          return true;
        });
    return taken.get();
  }

  @Test
  void aDeadlineOnAWaitHoldsWhileFramesAreExposed() {
    inTask(
        () -> {
          try (TaskScope<Integer> scope = runtime.scope()) {
            Fork<Integer> fork = scope.fork(() -> 1);
            Completion.Source<Integer> never = Completion.source();
            try {
              never.completion().await(Duration.ofMillis(2));
            } catch (DeadlineExceededException late) {
              assertThat(late).isNotNull();
            }
            Eventually.holds("taken meanwhile", () -> fork.state() == Fork.State.SUCCEEDED);
            return scope.join();
          }
        });
  }

  /**
   * The watcher looks once more before it sleeps for good, and waits there for a lock that others
   * hold: an unpark that comes meanwhile wakes it from the wait for the lock, and no more.
   */
  @Test
  void aWakeThatComesWhileTheWatcherWaitsForItsLockIsNotLost() throws Exception {
    Runners runners = runtime.runners();
    Field field = Runners.class.getDeclaredField("lock");
    field.setAccessible(true);
    ReentrantLock lock = (ReentrantLock) field.get(runners);
    inTask(
        () -> {
          try (TaskScope<Integer> scope = runtime.scope()) {
            scope.fork(() -> 1);
            return scope.join();
          }
        });
    int met = 0;
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
      runners.wake();
      Eventually.holds("it woke the last time, and sleeps", runners::isAsleep);
      lock.lock();
      try {
        // its nap ends by itself, and it looks
        met += Eventually.holdsWithin(Duration.ofSeconds(1), lock::hasQueuedThreads) ? 1 : 0;
        runners.wake();
      } finally {
        lock.unlock();
      }
    }
    Eventually.holds("it woke, and sleeps again", runners::isAsleep);
    assertThat(met).as("times that it was met in the wait for its lock").isPositive();
  }

  /** Two runners that take at the same time: the second moves no index, and must not for good. */
  @Test
  void whoTakesNextPassesOverWhatOthersTookOutOfOrder() {
    try (TaskScope<Integer> scope = runtime.scope()) {
      runtime.runners().close(); // nobody else looks at the deque
      Forks forks = new Forks(runtime.runners(), new Execution(Task.root(), null), null);
      List<Fork<Integer>> children = new ArrayList<>();
      for (int i = 0; i < 4; i++) {
        Task task = new Task(Task.root(), "child", 0, Placement.FREE, WaitMode.NONBLOCKING);
        children.add(new Fork<>(scope, task, () -> 1, null, true));
        forks.push(children.get(i));
      }
      assertThat(forks.take(children.get(1), 1)).isTrue();
      assertThat(forks.topIndex()).as("the oldest waits").isZero();
      assertThat(forks.take(children.get(0), 1)).isTrue();
      assertThat(forks.topIndex()).isEqualTo(1);
      assertThat(forks.take(children.get(2), 1)).isTrue();
      assertThat(forks.topIndex()).as("all before have begun").isEqualTo(3);
      assertThat(forks.oldest()).isSameAs(children.get(3));
      forks.end();
    }
  }

  /** Its runners take nothing by themselves: only what a thread that waits exposes. */
  @Test
  void aFrameThatIsWaitedForExposesWhatOtherRuntimesForked() {
    try (TaskRuntime other = TaskRuntime.open(TaskConfig.DEFAULT, Stealing.NEVER);
        TaskRuntime taking = TaskRuntime.open(TaskConfig.DEFAULT, Stealing.ALWAYS)) {
      CountDownLatch ran = new CountDownLatch(1);
      LongFork waits =
          (forks, n) -> {
            TaskScopeTest.awaitQuietly(ran);
            return n;
          };
      LongFork joins = (forks, n) -> forks.join(forks.fork(waits, n));
      long result =
          other.enter(
              "parent",
              0,
              () -> {
                try (TaskScope<Integer> scope = other.scope();
                    TaskScope<Integer> region = taking.scope()) {
                  scope.fork(
                      () -> {
                        ran.countDown();
                        return 1;
                      });
                  return region.forkJoin(joins, 7);
                }
              });
      assertThat(result).isEqualTo(7);
    }
  }

  /** It could resume on another OS thread, without the context. */
  @Test
  void aFrameIsNotWaitedForWhileAContextIsBound() {
    Binding binding =
        new Binding() {
          @Override
          public long bind() {
            return 0;
          }

          @Override
          public void restore(long previous) {}
        };
    Gate gate = Gate.of("lib", ThreadRule.CONTEXT_CURRENT, null, Set.of(), binding);
    try (TaskRuntime taking = TaskRuntime.open(TaskConfig.DEFAULT, Stealing.ALWAYS);
        TaskScope<Long> outer = taking.scope()) {
      outer.fork(
          () -> {
            try (TaskScope<Long> scope = taking.scope()) {
              LongFork waits =
                  (forks, n) -> {
                    Eventually.suspend();
                    return n;
                  };
              LongFork joins =
                  (forks, n) -> {
                    LongFrame frame = forks.fork(waits, n);
                    assertContextCurrent(() -> gate.call("join", () -> forks.join(frame)));
                    return forks.join(frame);
                  };
              assertContextCurrent(
                  () -> gate.call("forkJoin", () -> scope.forkJoin((forks, n) -> n, 1)));
              return scope.forkJoin(joins, 7);
            }
          });
      assertThat(outer.join()).containsExactly(7L);
    }
  }

  private static void assertContextCurrent(Runnable wait) {
    assertThatIllegalStateException()
        .isThrownBy(wait::run)
        .withMessageContaining("a context current")
        .withMessageContaining("outside of the call");
  }
}
