package io.fairlead.task;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatExceptionOfType;
import static org.assertj.core.api.Assertions.catchThrowable;

import io.fairlead.fault.TaskCancelledException;
import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** No thread is to be had for what was forked: it fails or runs in place, and nobody hangs. */
@Timeout(60)
class NoRunnerTest {

  /**
   * For the OutOfMemoryError that Java throws: one that got out of a test would end JUnit's run.
   */
  private static final class NoThread extends VirtualMachineError {
    private static final long serialVersionUID = 1;

    NoThread() {
      super("no thread, on purpose");
    }
  }

  /** Gives so many threads, then none, until there are more. */
  private static final class Scarce implements ThreadFactory {
    private final ThreadFactory from;
    final AtomicInteger left = new AtomicInteger();
    final AtomicInteger refused = new AtomicInteger();

    Scarce(ThreadFactory from) {
      this.from = from;
    }

    @Override
    public Thread newThread(Runnable body) {
      if (left.getAndDecrement() <= 0) {
        left.incrementAndGet();
        refused.incrementAndGet();
        throw new NoThread();
      }
      return from.newThread(body);
    }
  }

  private static Scarce scarce(TaskRuntime runtime) {
    Scarce scarce = new Scarce(runtime.threads);
    runtime.threads = scarce;
    return scarce;
  }

  private static long fib(Forks forks, long n) {
    if (n < 2) {
      return n;
    }
    LongFrame left = forks.fork(NoRunnerTest::fib, n - 1);
    long right = fib(forks, n - 2);
    return forks.join(left) + right;
  }

  @Test
  void aFrameThatWasTakenForNobodyFails() {
    try (TaskRuntime runtime = TaskRuntime.open(TaskConfig.DEFAULT, Stealing.ALWAYS)) {
      Scarce threads = scarce(runtime);
      runtime.<Void>enter(
          "parent",
          0,
          () -> {
            try (TaskScope<Long> scope = runtime.scope()) {
              assertThatExceptionOfType(NoThread.class)
                  .isThrownBy(() -> scope.forkJoin(NoRunnerTest::fib, 5))
                  .withMessageContaining("on purpose");
              threads.left.set(Integer.MAX_VALUE);
              assertThat(scope.forkJoin(NoRunnerTest::fib, 5)).isEqualTo(5);
            }
            return null;
          });
    }
  }

  @Test
  void aChildThatWasTakenForNobodyFails() {
    try (TaskRuntime runtime = TaskRuntime.open(TaskConfig.DEFAULT, Stealing.ALWAYS)) {
      Scarce threads = scarce(runtime);
      runtime.<Void>enter(
          "parent",
          0,
          () -> {
            try (TaskScope<Integer> scope = runtime.scope()) {
              Fork<Integer> fork = scope.fork(() -> 1);
              assertThat(catchThrowable(scope::join))
                  .isInstanceOf(TaskCancelledException.class)
                  .hasMessageContaining("on purpose");
              assertThat(fork.state()).isEqualTo(Fork.State.CANCELLED);
            }
            threads.left.set(Integer.MAX_VALUE);
            try (TaskScope<Integer> scope = runtime.scope()) {
              scope.fork(() -> 2);
              assertThat(scope.join()).containsExactly(2);
            }
            return null;
          });
    }
  }

  @Test
  void whereThereIsNoWatcherChildrenRunInPlace() {
    try (TaskRuntime runtime = TaskRuntime.open(TaskConfig.DEFAULT, Stealing.MIXED)) {
      Scarce threads = scarce(runtime);
      runtime.<Void>enter(
          "parent",
          0,
          () -> {
            try (TaskScope<Integer> scope = runtime.scope()) {
              scope.fork(() -> 1);
              assertThat(scope.join()).containsExactly(1);
            }
            assertThat(threads.refused.get()).isPositive();
            threads.left.set(Integer.MAX_VALUE);
            assertThat(isTakenWhileItsParentWaits(runtime)).as("one comes later").isTrue();
            return null;
          });
    }
  }

  @Test
  void aWatcherThatFindsNoSuccessorRunsWhatItTook() {
    try (TaskRuntime runtime = TaskRuntime.open(TaskConfig.DEFAULT, Stealing.MIXED)) {
      Scarce threads = scarce(runtime);
      threads.left.set(1); // a watcher, and nobody after it
      runtime.<Void>enter(
          "parent",
          0,
          () -> {
            for (int i = 0; i < 3; i++) {
              assertThat(isTakenWhileItsParentWaits(runtime)).as("round %s", i).isTrue();
              // its child has ended, but it may still be on its way to where it can be called
              Runners runners = runtime.runners();
              Eventually.holds(
                  "the only runner rests, or watches again",
                  () -> runners.resting() == 1 || runners.isAsleep());
            }
            return null;
          });
      assertThat(threads.refused.get()).isPositive();
    }
  }

  /** Between the parent's look at what lies here and its look for a watcher. */
  @Test
  void aParentWhoseLastFrameTheLastWatcherTookWaitsForIt() {
    try (TaskRuntime runtime = TaskRuntime.open(TaskConfig.DEFAULT, Stealing.MIXED)) {
      Thread parent = Thread.currentThread();
      AtomicInteger refusedToParent = new AtomicInteger();
      CountDownLatch begun = new CountDownLatch(1);
      AtomicInteger asked = new AtomicInteger();
      ThreadFactory from = runtime.threads;
      runtime.threads =
          body -> {
            if (asked.getAndIncrement() == 0) {
              return from.newThread(
                  () -> {
                    Eventually.holds("the parent waits", () -> refusedToParent.get() > 0);
                    body.run();
                  });
            }
            if (Thread.currentThread() == parent) {
              refusedToParent.incrementAndGet();
              Eventually.holds("the watcher took the child", () -> begun.getCount() == 0);
            }
            throw new NoThread();
          };
      Completion.Source<Boolean> done = Completion.source();
      runtime.<Void>enter(
          "parent",
          0,
          () -> {
            try (TaskScope<Integer> scope = runtime.scope()) {
              scope.fork(
                  () -> {
                    begun.countDown();
                    Eventually.holds(
                        "the parent found no watcher", () -> refusedToParent.get() > 1);
                    done.complete(true);
                    return 1;
                  });
              assertThat(done.completion().await(Duration.ofSeconds(20))).isTrue();
              assertThat(scope.join()).containsExactly(1);
            }
            return null;
          });
    }
  }

  @Test
  void aJoinThatFindsNoThreadForWhatLiesBelowWaitsAllTheSame() {
    try (TaskRuntime runtime = TaskRuntime.open(TaskConfig.DEFAULT, Stealing.NEVER)) {
      Scarce threads = scarce(runtime);
      runtime.<Void>enter(
          "parent",
          0,
          () -> {
            try (TaskScope<Long> scope = runtime.scope()) {
              assertThat(scope.forkJoin((forks, n) -> onlyTheNewest(runtime, threads, forks), 0))
                  .isEqualTo(3);
              assertThat(scope.forkJoin(NoRunnerTest::fib, 5)).isEqualTo(5);
            }
            return null;
          });
    }
  }

  /** One thread takes the newest, and ends when none was to be had for the other. */
  private static long onlyTheNewest(TaskRuntime runtime, Scarce threads, Forks forks) {
    LongFrame below = forks.fork((own, n) -> n, 1);
    int refused = threads.refused.get();
    LongFrame newest =
        forks.fork(
            (own, n) -> {
              while (threads.refused.get() < refused + 2) { // the fork's own, and the wait's
                Thread.onSpinWait();
              }
              return n;
            },
            2);
    assertThat(newest.takeForRunner()).isTrue();
    threads.left.set(1);
    runtime.runners().execute(newest);
    threads.left.set(0);
    return forks.join(newest) + forks.join(below);
  }

  @Test
  void aScopeThatFindsNoThreadForWhatLiesBelowIsClosedAllTheSame() {
    try (TaskRuntime runtime = TaskRuntime.open(TaskConfig.DEFAULT, Stealing.NEVER)) {
      Scarce threads = scarce(runtime);
      runtime.<Void>enter(
          "parent",
          0,
          () -> {
            try (TaskScope<Integer> outer = runtime.scope()) {
              outer.fork(() -> 1);
              AtomicInteger ended = new AtomicInteger();
              int refused = threads.refused.get();
              TaskScope<Integer> scope = runtime.scope();
              CountDownLatch begun = new CountDownLatch(1);
              scope.fork(
                  ForkOptions.DEFAULT.eager(true),
                  () -> {
                    begun.countDown();
                    while (threads.refused.get() < refused + 1) {
                      Thread.onSpinWait();
                    }
                    return ended.incrementAndGet();
                  });
              begun.await();
              scope.close();
              assertThat(ended).hasValue(1);
              assertThat(outer.join()).containsExactly(1);
            }
            return null;
          });
    }
  }

  /** The parent waits for its child, which a runner has to begin. */
  private static boolean isTakenWhileItsParentWaits(TaskRuntime runtime) throws Exception {
    CountDownLatch ran = new CountDownLatch(1);
    Completion.Source<Boolean> done = Completion.source();
    try (TaskScope<Integer> scope = runtime.scope()) {
      scope.fork(
          () -> {
            ran.countDown();
            done.complete(true);
            return 1;
          });
      boolean taken = done.completion().await(Duration.ofSeconds(20));
      scope.join();
      return taken && ran.await(0, TimeUnit.SECONDS);
    }
  }

  /** Where nobody can come for a fork that lies further out, a wait fails before it begins. */
  @Test
  void aWaitThatFailsBeforeItBeginsExposesNothing() {
    try (TaskRuntime runtime = TaskRuntime.open(TaskConfig.DEFAULT, Stealing.MIXED)) {
      Scarce threads = scarce(runtime);
      GateLock lock = new GateLock();
      CountDownLatch locked = new CountDownLatch(1);
      CountDownLatch hold = new CountDownLatch(1);
      runtime.<Void>enter(
          "parent",
          0,
          () -> {
            Forks forks = Objects.requireNonNull(Execution.current()).forksOf(runtime.runners());
            try (TaskScope<Integer> outer = runtime.scope();
                TaskScope<Integer> inner = runtime.scope()) {
              outer.fork(() -> 1);
              inner.fork(
                  ForkOptions.DEFAULT.eager(true),
                  () -> {
                    lock.lock();
                    try {
                      locked.countDown();
                      hold.await();
                    } finally {
                      lock.unlock();
                    }
                    return 2;
                  });
              Eventually.holds("it has the lock", () -> locked.getCount() == 0);
              List<Runnable> waits =
                  List.of(() -> Completion.source().completion().await(), inner::join, lock::lock);
              for (Runnable wait : waits) {
                assertThat(catchThrowable(wait::run)).isInstanceOf(NoThread.class);
                assertThat(forks.isExposed()).isFalse();
              }
              threads.left.set(Integer.MAX_VALUE);
              hold.countDown();
              assertThat(inner.join()).containsExactly(2);
              assertThat(outer.join()).containsExactly(1);
            } finally {
              hold.countDown();
            }
            return null;
          });
    }
  }
}
