package io.fairlead.task;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatExceptionOfType;
import static org.assertj.core.api.Assertions.assertThatIllegalArgumentException;
import static org.assertj.core.api.Assertions.assertThatIllegalStateException;

import io.fairlead.fault.DeadlineExceededException;
import io.fairlead.fault.EngineException;
import io.fairlead.fault.TaskCancelledException;
import io.fairlead.fault.TaskInterruptedException;
import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.IntStream;
import java.util.stream.LongStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What frames and lazy children give, whoever runs them. */
@Timeout(120)
abstract class ForkingContract {
  TaskRuntime runtime;

  abstract Stealing stealing();

  @BeforeEach
  void open() {
    runtime = TaskRuntime.open(TaskConfig.DEFAULT, stealing());
  }

  @AfterEach
  void close() {
    runtime.close();
    Eventually.holds("runners and deques are gone", () -> runtime.runners().registered() == 0);
    assertThat(Thread.interrupted()).as("no interrupt is left behind").isFalse();
  }

  /** On a virtual thread, as a task: children are lazy there. */
  <T> T inTask(TaskBody<T> body) {
    try (TaskScope<T> scope = runtime.scope()) {
      scope.fork(ForkOptions.named("p"), body);
      return scope.join().getFirst();
    }
  }

  @SuppressWarnings("TypeParameterUnusedInFormals") // fits every body; it never returns
  static <T> T forever() {
    return Completion.<T>source().completion().await();
  }

  // --- frames

  static long fib(Forks forks, long n) {
    if (n < 2) {
      return n;
    }
    LongFrame first = forks.fork(ForkingContract::fib, n - 1);
    long second = fib(forks, n - 2);
    return forks.join(first) + second;
  }

  @Test
  void framesGiveWhatCallsGive() {
    assertThat(framed(ForkingContract::fib, 20)).isEqualTo(6765);
  }

  @Test
  void framesWorkOnThreadsThatNeverEntered() {
    try (TaskScope<Long> scope = runtime.scope()) {
      assertThat(scope.forkJoin(ForkingContract::fib, 15)).isEqualTo(610);
      assertThat(Task.current()).isSameAs(runtime.root());
    }
  }

  long framed(LongFork fn, long argument) {
    return inTask(
        () -> {
          try (TaskScope<Long> scope = runtime.scope(ScopeOptions.DEFAULT.name("frames"))) {
            return scope.forkJoin(fn, argument);
          }
        });
  }

  private static List<Integer> sorted(Forks forks, List<Integer> values) {
    if (values.size() < 2) {
      return values;
    }
    int middle = values.size() / 2;
    ObjectFrame<List<Integer>> left =
        forks.fork(ForkingContract::sorted, values.subList(0, middle));
    // long and object frames may be mixed
    LongFrame count = forks.fork((f, size) -> size, values.size());
    List<Integer> right = sorted(forks, values.subList(middle, values.size()));
    assertThat(forks.join(count)).isEqualTo(values.size());
    return merged(forks.join(left), right);
  }

  private static List<Integer> merged(List<Integer> left, List<Integer> right) {
    List<Integer> all = new java.util.ArrayList<>();
    int l = 0;
    for (int value : right) {
      while (l < left.size() && left.get(l) <= value) {
        all.add(left.get(l++));
      }
      all.add(value);
    }
    all.addAll(left.subList(l, left.size()));
    return all;
  }

  @Test
  void objectsGoThroughFramesToo() {
    List<Integer> values = IntStream.range(0, 300).map(i -> i * 7919 % 301).boxed().toList();
    List<Integer> result =
        inTask(
            () -> {
              try (TaskScope<Integer> scope = runtime.scope()) {
                return scope.forkJoin(ForkingContract::sorted, values);
              }
            });
    assertThat(result).isEqualTo(values.stream().sorted().toList());
  }

  @Test
  void aFrameKeepsNoObjectAlive() {
    inTask(
        () -> {
          try (TaskScope<Integer> scope = runtime.scope()) {
            scope.forkJoin(
                (forks, n) -> {
                  ObjectFrame<Object> joined = forks.fork((f, o) -> o, new Object());
                  assertThat(forks.join(joined)).isNotNull();
                  assertThat(joined.argument).isNull();
                  assertThat(joined.result).isNull();
                  return 0;
                },
                0);
          }
          return true;
        });
  }

  @Test
  void manyFramesAtOnceGrowTheDeque() {
    long sum =
        framed(
            (forks, n) -> {
              LongFrame[] frames = new LongFrame[(int) n];
              for (int i = 0; i < n; i++) {
                frames[i] = forks.fork((f, value) -> value, i);
              }
              long total = 0;
              for (int i = (int) n - 1; i >= 0; i--) {
                total += forks.join(frames[i]);
              }
              return total;
            },
            1_000);
    assertThat(sum).isEqualTo(LongStream.range(0, 1_000).sum());
  }

  @Test
  void aDeepRecursionOfFramesGoesOnElsewhere() {
    assertThat(framed(ForkingContract::down, 50_000)).isEqualTo(50_000);
  }

  private static long down(Forks forks, long n) {
    return n == 0 ? 0 : 1 + forks.join(forks.fork(ForkingContract::down, n - 1));
  }

  @Test
  void aFramesFailureIsThrownAtItsJoinAsItIs() {
    EngineException failure = new EngineException("e", "broke", null);
    assertThatExceptionOfType(EngineException.class)
        .isThrownBy(() -> framed((forks, n) -> failing(forks, n, failure), 6))
        .satisfies(e -> assertThat(e).isSameAs(failure));
  }

  private static long failing(Forks forks, long n, RuntimeException failure) {
    if (n == 0) {
      throw failure;
    }
    LongFrame other = forks.fork((f, m) -> failing(f, m, failure), n - 1);
    LongFrame never = forks.fork((f, m) -> m, n);
    if (n % 2 == 0) {
      failing(forks, n - 1, failure); // throws: both frames are left behind
    }
    return forks.join(never) + forks.join(other);
  }

  @Test
  void whatAFailingFunctionLeftIsGoneAndForksGoOn() {
    long result =
        framed(
            (forks, n) -> {
              LongFrame bad =
                  forks.fork(
                      (f, m) -> {
                        f.fork(ForkingContract::fib, m);
                        f.fork(ForkingContract::fib, m);
                        throw new IllegalArgumentException("on purpose");
                      },
                      n);
              assertThatIllegalArgumentException().isThrownBy(() -> forks.join(bad));
              return fib(forks, n);
            },
            12);
    assertThat(result).isEqualTo(144);
  }

  @Test
  void aCancelledScopeStopsTheRecursionAndIsNamed() {
    CountDownLatch going = new CountDownLatch(1);
    AtomicReference<TaskScope<Long>> frames = new AtomicReference<>();
    Thread canceller =
        Thread.ofPlatform() // the recursion never gives up its carrier
            .daemon()
            .start(
                () -> {
                  TaskScopeTest.awaitQuietly(going);
                  frames.get().cancel(new IOException("enough"));
                });
    assertThatExceptionOfType(TaskCancelledException.class)
        .isThrownBy(
            () ->
                inTask(
                    () -> {
                      try (TaskScope<Long> scope =
                          runtime.scope(ScopeOptions.DEFAULT.name("frames"))) {
                        frames.set(scope);
                        return scope.forkJoin((forks, n) -> endless(forks, going), 0);
                      }
                    }))
        .withMessageContaining("frames")
        .withMessageContaining("enough");
    assertThat(canceller.isDaemon()).isTrue();
  }

  private static long endless(Forks forks, CountDownLatch going) {
    for (int i = 0; ; i++) {
      LongFrame frame = forks.fork(ForkingContract::fib, 5);
      forks.join(frame);
      if (i == 100) {
        going.countDown();
      }
    }
  }

  @Test
  void aDeadlineStopsTheRecursion() {
    ScopeOptions options = ScopeOptions.DEFAULT.name("slow").deadline(Duration.ofMillis(5));
    assertThatExceptionOfType(TaskCancelledException.class)
        .isThrownBy(
            () ->
                inTask(
                    () -> {
                      try (TaskScope<Long> scope = runtime.scope(options)) {
                        return scope.forkJoin(
                            (forks, n) -> endless(forks, new CountDownLatch(1)), 0);
                      }
                    }))
        .withCauseInstanceOf(DeadlineExceededException.class);
  }

  @Test
  void cancellationReachesAFrameThatWaits() {
    CountDownLatch waits = new CountDownLatch(1);
    AtomicReference<Task> parent = new AtomicReference<>();
    Thread.ofVirtual()
        .start(
            () -> {
              TaskScopeTest.awaitQuietly(waits);
              parent.get().cancel(new IOException("enough"));
            });
    assertThatExceptionOfType(TaskCancelledException.class)
        .isThrownBy(
            () ->
                framed(
                    (forks, n) -> {
                      parent.set(Task.current());
                      return forks.join(
                          forks.fork(
                              (f, m) -> {
                                waits.countDown();
                                return ForkingContract.<Long>forever();
                              },
                              0));
                    },
                    0))
        .withMessageContaining("enough");
  }

  @Test
  void aFrameKnowsItsTask() {
    long seen =
        framed(
            (forks, n) -> {
              Task self = Task.current();
              LongFrame frame =
                  forks.fork(
                      (f, m) -> {
                        Task task = Task.current();
                        return task == self || task.parent() == self ? 1 : 0;
                      },
                      0);
              long known = forks.join(frame);
              assertThat(Task.current()).isSameAs(self);
              return known;
            },
            0);
    assertThat(seen).isOne();
  }

  @Test
  void scopesAndFramesMayBeNested() {
    long result =
        framed(
            (forks, n) -> {
              LongFrame before = forks.fork(ForkingContract::fib, n);
              long inner;
              try (TaskScope<Long> scope = runtime.scope()) {
                for (int i = 0; i < 3; i++) {
                  scope.fork(
                      () -> {
                        try (TaskScope<Long> again = runtime.scope()) {
                          return again.forkJoin(ForkingContract::fib, n);
                        }
                      });
                }
                inner = scope.join().stream().mapToLong(Long::longValue).sum();
              }
              return inner + forks.join(before);
            },
            10);
    assertThat(result).isEqualTo(4 * 55);
  }

  // --- frames: bad use

  @Test
  void joiningAFrameTwiceIsRefused() {
    misused(
        (forks, n) -> {
          LongFrame frame = forks.fork(ForkingContract::fib, 3);
          forks.join(frame);
          return forks.join(frame);
        },
        "joined already");
  }

  @Test
  void joiningOutOfOrderIsRefused() {
    misused(
        (forks, n) -> {
          LongFrame older = forks.fork(ForkingContract::fib, 3);
          forks.fork(ForkingContract::fib, 3);
          return forks.join(older);
        },
        "out of order: 1 newer");
  }

  @Test
  void leavingAFrameBehindIsRefused() {
    misused((forks, n) -> forks.fork(ForkingContract::fib, 3).index, "without joining all");
    misused(
        (forks, n) -> forks.join(forks.fork((f, m) -> f.fork(ForkingContract::fib, 3).index, 0)),
        "without joining all");
  }

  @Test
  void anotherThreadsFrameIsRefused() {
    misused(
        (forks, n) -> {
          LongFrame mine = forks.fork(ForkingContract::fib, 3);
          long other;
          try (TaskScope<Long> scope = runtime.scope()) {
            scope.fork(
                ForkOptions.DEFAULT.eager(true),
                () -> {
                  try (TaskScope<Long> inner = runtime.scope()) {
                    return inner.forkJoin((f, m) -> f.join(mine), 0);
                  }
                });
            other = scope.join().getFirst();
          }
          return other + forks.join(mine);
        },
        "belongs to another thread");
    misused(
        (forks, n) -> {
          try (TaskScope<Long> scope = runtime.scope()) {
            scope.fork(
                ForkOptions.DEFAULT.eager(true),
                () -> forks.join(forks.fork(ForkingContract::fib, 3)));
            return scope.join().getFirst();
          }
        },
        "belong to another thread");
  }

  @Test
  void forksAreRefusedAfterwards() {
    AtomicReference<Forks> kept = new AtomicReference<>();
    inTask(
        () -> {
          try (TaskScope<Long> scope = runtime.scope()) {
            scope.forkJoin(
                (forks, n) -> {
                  kept.set(forks);
                  return 0;
                },
                0);
            assertThatIllegalStateException()
                .isThrownBy(() -> kept.get().fork(ForkingContract::fib, 1))
                .withMessageContaining("after forkJoin has returned");
            scope.join();
            assertThatIllegalStateException()
                .isThrownBy(() -> scope.forkJoin(ForkingContract::fib, 1))
                .withMessageContaining("joined already");
          }
          return true;
        });
  }

  private void misused(LongFork fn, String message) {
    assertThatIllegalStateException()
        .isThrownBy(() -> framed(fn, 0))
        .withMessageContaining(message);
  }

  // --- children of scopes

  @Test
  void childrenGiveTheirResultsInForkOrder() {
    List<Integer> results =
        inTask(
            () -> {
              try (TaskScope<Integer> scope = runtime.scope()) {
                for (int i = 0; i < 1_000; i++) {
                  int value = i;
                  scope.fork(() -> value);
                }
                return scope.join();
              }
            });
    assertThat(results).isEqualTo(IntStream.range(0, 1_000).boxed().toList());
  }

  @Test
  void aChildIsATaskOfItsOwn() {
    inTask(
        () -> {
          Task parent = Task.current();
          try (TaskScope<Task> scope = runtime.scope()) {
            Fork<Task> fork = scope.fork(ForkOptions.named("c").priority(7), Task::current);
            Task child = scope.join().getFirst();
            assertThat(child).isSameAs(fork.task());
            assertThat(child.parent()).isSameAs(parent);
            assertThat(child.name()).isEqualTo("c");
            assertThat(child.priority()).isEqualTo(7);
            assertThat(Task.current()).isSameAs(parent);
          }
          return true;
        });
  }

  @Test
  void hooksFollowTheStructure() {
    List<String> log = new CopyOnWriteArrayList<>();
    TaskAttachment<String> key =
        new TaskAttachment<>() {
          @Override
          protected String initial(Task task) {
            return "of " + task.name();
          }

          @Override
          protected String fork(Task parent, String parentValue, Task child) {
            log.add("fork " + child.name() + " in " + Task.current().name());
            return "for " + child.name();
          }

          @Override
          protected void end(Task task, String value) {
            log.add("end " + task.name() + " " + value + " in " + Task.current().name());
          }

          @Override
          protected void join(Task parent, Task child, String childValue) {
            log.add("join " + child.name() + " in " + Task.current().name());
          }
        };
    inTask(
        () -> {
          Task.current().get(key);
          try (TaskScope<String> scope = runtime.scope()) {
            scope.fork(ForkOptions.named("c"), () -> Task.current().get(key));
            assertThat(scope.join()).containsExactly("for c");
          }
          return true;
        });
    assertThat(log)
        .containsExactly(
            "fork c in p", "end c for c in c", "join c in p", "end p of p in p", "join p in root");
  }

  @Test
  void localsAreInherited() {
    TaskLocal<String> local = TaskLocal.of("none");
    String seen =
        inTask(
            () ->
                local.where(
                    "set",
                    () -> {
                      try (TaskScope<String> scope = runtime.scope()) {
                        scope.fork(local::get);
                        scope.fork(() -> local.where("inner", local::get));
                        scope.fork(local::get);
                        return String.join(",", scope.join());
                      }
                    }));
    assertThat(seen).isEqualTo("set,inner,set");
  }

  @Test
  void theFirstFailureCancelsTheRest() {
    EngineException failure = new EngineException("e", "broke", null);
    inTask(
        () -> {
          try (TaskScope<Integer> scope = runtime.scope(ScopeOptions.DEFAULT.name("work"))) {
            Fork<Integer> failing =
                scope.fork(
                    ForkOptions.named("bad"),
                    () -> {
                      throw failure;
                    });
            Fork<Integer> rest = scope.fork(ForkingContract::forever);
            assertThatExceptionOfType(EngineException.class)
                .isThrownBy(scope::join)
                .satisfies(e -> assertThat(e).isSameAs(failure));
            assertThat(failing.state()).isEqualTo(Fork.State.FAILED);
            assertThat(rest.state()).isEqualTo(Fork.State.CANCELLED);
          }
          return true;
        });
    assertThat(failure.getSuppressed())
        .anySatisfy(note -> assertThat(note).hasMessageContaining("'bad', fork 0 of scope 'work'"));
  }

  @Test
  void firstSuccessCancelsTheRest() {
    inTask(
        () -> {
          ScopeOptions first = ScopeOptions.of(ScopePolicy.FIRST_SUCCESS);
          try (TaskScope<String> scope = runtime.scope(first)) {
            scope.fork(
                () -> {
                  throw new IOException("no luck");
                });
            scope.fork(() -> "won");
            Fork<String> loser = scope.fork(ForkingContract::forever);
            assertThat(scope.join()).containsExactly("won");
            assertThat(loser.state()).isEqualTo(Fork.State.CANCELLED);
          }
          return true;
        });
  }

  @Test
  void collectGivesSuccesses() {
    List<Integer> got =
        inTask(
            () -> {
              ScopeOptions collect = ScopeOptions.of(ScopePolicy.COLLECT);
              try (TaskScope<Integer> scope = runtime.scope(collect)) {
                scope.fork(() -> 1);
                scope.fork(
                    () -> {
                      throw new IOException("x");
                    });
                scope.fork(() -> 3);
                return scope.join();
              }
            });
    assertThat(got).containsExactly(1, 3);
  }

  @Test
  void aChildThatWasCancelledDoesNotBegin() {
    AtomicBoolean ran = new AtomicBoolean();
    inTask(
        () -> {
          try (TaskScope<Integer> scope = runtime.scope()) {
            scope.cancel(null);
            Fork<Integer> fork =
                scope.fork(
                    () -> {
                      ran.set(true);
                      return 1;
                    });
            assertThatExceptionOfType(TaskCancelledException.class).isThrownBy(scope::join);
            assertThat(fork.state()).isEqualTo(Fork.State.CANCELLED);
          }
          return true;
        });
    assertThat(ran).isFalse();
  }

  @Test
  void cancellationReachesAChildThatWaits() {
    cancelled(ForkingContract::forever);
  }

  @Test
  void cancellationReachesAChildInAJdkWait() {
    cancelled(
        () -> {
          new CountDownLatch(1).await();
          return 0;
        });
  }

  @Test
  void cancellationReachesAGrandchild() {
    cancelled(
        () -> {
          try (TaskScope<Integer> inner = runtime.scope()) {
            inner.fork(ForkingContract::forever);
            return inner.join().getFirst();
          }
        });
  }

  private void cancelled(TaskBody<Integer> body) {
    AtomicReference<Thread> thread = new AtomicReference<>();
    AtomicReference<TaskScope<Integer>> shared = new AtomicReference<>();
    Thread.ofVirtual()
        .start(
            () -> {
              Eventually.holds("it begins", () -> thread.get() != null);
              Eventually.waits(thread.get());
              shared.get().cancel(new IOException("why"));
            });
    inTask(
        () -> {
          try (TaskScope<Integer> scope = runtime.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
            shared.set(scope);
            Fork<Integer> fork =
                scope.fork(
                    () -> {
                      thread.set(Thread.currentThread());
                      return body.run();
                    });
            assertThat(scope.join()).isEmpty();
            assertThat(fork.state()).isEqualTo(Fork.State.CANCELLED);
            assertThat(Thread.currentThread().isInterrupted()).isFalse();
          }
          return true;
        });
  }

  @Test
  @SuppressWarnings("try") // closes early, to see what it leaves
  void anInterruptOfTheParentEndsItsJoin() {
    AtomicReference<Task> parent = new AtomicReference<>();
    AtomicReference<Thread> thread = new AtomicReference<>();
    Thread.ofVirtual()
        .start(
            () -> {
              Eventually.holds("it begins", () -> thread.get() != null);
              Eventually.waits(thread.get());
              parent.get().interrupt();
            });
    inTask(
        () -> {
          parent.set(Task.current());
          try (TaskScope<Integer> scope = runtime.scope()) {
            Fork<Integer> fork =
                scope.fork(
                    () -> {
                      thread.set(Thread.currentThread());
                      return forever();
                    });
            assertThatExceptionOfType(TaskInterruptedException.class).isThrownBy(scope::join);
            scope.close();
            assertThat(fork.state()).isEqualTo(Fork.State.CANCELLED);
          }
          assertThat(Task.interrupted()).isTrue();
          return true;
        });
  }

  @Test
  void aChildsInterruptIsItsOwn() {
    inTask(
        () -> {
          try (TaskScope<Boolean> scope = runtime.scope()) {
            scope.fork(
                () -> {
                  Thread.currentThread().interrupt();
                  return Task.current().isInterrupted();
                });
            scope.fork(() -> Task.current().isInterrupted());
            Fork<Boolean> poked =
                scope.fork(() -> Task.current().isInterrupted() && !Thread.interrupted());
            assertThat(poked.state()).isIn(Fork.State.RUNNING, Fork.State.SUCCEEDED);
            assertThat(scope.join()).containsExactly(true, false, false);
            assertThat(Thread.currentThread().isInterrupted()).isFalse();
          }
          return true;
        });
  }

  @Test
  void leavingCancelsWhatHasNotBegun() {
    AtomicInteger ended = new AtomicInteger();
    inTask(
        () -> {
          List<Fork<Integer>> forks;
          try (TaskScope<Integer> scope = runtime.scope()) {
            for (int i = 0; i < 10; i++) {
              scope.fork(
                  () -> {
                    try {
                      return forever();
                    } finally {
                      ended.incrementAndGet();
                    }
                  });
            }
            forks = scope.forks();
          }
          assertThat(forks).allMatch(f -> f.state() == Fork.State.CANCELLED);
          return true;
        });
    assertThat(ended.get()).isBetween(0, 10);
  }

  @Test
  void aScopeThatAChildLeavesOpenIsClosedAndSaid() {
    inTask(
        () -> {
          AtomicReference<Fork<Integer>> left = new AtomicReference<>();
          try (TaskScope<Integer> scope = runtime.scope()) {
            scope.fork(
                () -> {
                  TaskScope<Integer> open = runtime.scope(ScopeOptions.DEFAULT.name("left"));
                  left.set(open.fork(ForkingContract::forever));
                  return 1;
                });
            assertThatIllegalStateException()
                .isThrownBy(scope::join)
                .withMessageContaining("scope 'left' open");
          }
          assertThat(left.get().state()).isEqualTo(Fork.State.CANCELLED);
          return true;
        });
  }

  @Test
  void aDeadlineReachesAChild() {
    ScopeOptions options = ScopeOptions.DEFAULT.name("slow").deadline(Duration.ofMillis(5));
    inTask(
        () -> {
          try (TaskScope<Integer> scope = runtime.scope(options)) {
            Fork<Integer> fork = scope.fork(ForkingContract::forever);
            assertThatExceptionOfType(DeadlineExceededException.class).isThrownBy(scope::join);
            assertThat(fork.state()).isEqualTo(Fork.State.CANCELLED);
          }
          return true;
        });
  }

  @Test
  void twoScopesMayBeForkedIntoInTurn() {
    List<Integer> both =
        inTask(
            () -> {
              try (TaskScope<Integer> outer = runtime.scope()) {
                outer.fork(() -> 1);
                List<Integer> inner;
                try (TaskScope<Integer> second = runtime.scope()) {
                  second.fork(() -> 10);
                  outer.fork(() -> 2);
                  second.fork(() -> 20);
                  outer.fork(() -> 3);
                  inner = second.join();
                }
                assertThat(inner).containsExactly(10, 20);
                return outer.join();
              }
            });
    assertThat(both).containsExactly(1, 2, 3);
  }

  @Test
  void manyLevelsOfManyChildren() {
    assertThat(inTask(() -> count(4))).isEqualTo(1 + 6 + 36 + 216 + 1296);
  }

  private int count(int depth) {
    if (depth == 0) {
      return 1;
    }
    try (TaskScope<Integer> scope = runtime.scope()) {
      for (int i = 0; i < 6; i++) {
        scope.fork(() -> count(depth - 1));
      }
      return 1 + scope.join().stream().mapToInt(Integer::intValue).sum();
    }
  }

  @Test
  void thousandsOfLevelsDoNotOverflowAStack() {
    assertThat(inTask(() -> levels(5_000))).isEqualTo(5_000);
  }

  private int levels(int n) {
    if (n == 0) {
      return 0;
    }
    try (TaskScope<Integer> scope = runtime.scope()) {
      scope.fork(() -> levels(n - 1));
      return 1 + scope.join().getFirst();
    }
  }

  @Test
  void aChildMayWaitForWhatItsSiblingDoes() {
    // in place the first would wait for ever, if waiting did not let others have the second
    inTask(
        () -> {
          Completion.Source<Integer> source = Completion.source();
          try (TaskScope<Integer> scope = runtime.scope()) {
            scope.fork(() -> source.completion().await());
            scope.fork(
                () -> {
                  source.complete(5);
                  return 6;
                });
            assertThat(scope.join()).containsExactly(5, 6);
          }
          return true;
        });
  }

  @Test
  void aScopeLentToAnOwnerIsJoinedThere() {
    Owner owner = runtime.owner("o", Role.OWNER);
    List<String> names =
        inTask(
            () -> {
              try (TaskScope<String> scope = runtime.scope()) {
                scope.fork(() -> Thread.currentThread().getName());
                return owner.callLent(
                    () -> {
                      scope.fork(() -> Thread.currentThread().getName());
                      return scope.join();
                    });
              }
            });
    assertThat(names).hasSize(2).noneMatch(name -> name.startsWith("fairlead-o"));
  }
}
