package io.fairlead.task;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatExceptionOfType;
import static org.assertj.core.api.Assertions.assertThatIllegalStateException;
import static org.assertj.core.api.Assertions.catchThrowable;

import io.fairlead.fault.DeadlineExceededException;
import io.fairlead.fault.EngineException;
import io.fairlead.fault.TaskCancelledException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Predicate;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Joins are waits on which others may depend: what hangs with them is found, and nothing else. */
@Timeout(60)
class JoinDeadlockTest {
  private static final ForkOptions EAGER = ForkOptions.DEFAULT.eager(true);

  private TaskRuntime runtime;

  @BeforeEach
  void open() {
    runtime = TaskRuntime.open(TaskConfig.DEFAULT);
  }

  @AfterEach
  void close() {
    runtime.close();
    assertThat(WaitGraph.size()).as("waits that were not left").isZero();
  }

  private Engine<Integer> engine(String name, int instances) {
    return runtime.engine(name, ThreadRule.ONE_AT_A_TIME, () -> 1, EngineLimits.of(instances));
  }

  /** The engine counts somebody who waits before the graph knows of the wait. */
  private static void waits(Engine<?> engine) {
    Eventually.holds(
        "somebody waits",
        () -> WaitGraph.size("an instance of engine '" + engine.name() + "'") == 1);
  }

  private static TaskBody<Integer> calling(Engine<Integer> engine) {
    return () -> engine.<Integer>call(0, i -> i);
  }

  /** Calls the engine once as many waits are known. */
  private static TaskBody<Integer> callingOnce(int waits, Engine<Integer> engine) {
    return () -> {
      Eventually.holds("others wait", () -> WaitGraph.size() >= waits);
      return engine.<Integer>call(0, i -> i);
    };
  }

  private static void assertFound(@Nullable Throwable failure, String... words) {
    assertThat(failure)
        .isInstanceOf(EngineException.class)
        .hasMessageContaining("would wait for ever")
        .hasMessageContainingAll(words);
  }

  // --- one engine, one scope

  @ParameterizedTest
  @EnumSource(ScopePolicy.class)
  void aChildThatCallsTheEngineInWhoseCallItsScopeIsJoined(ScopePolicy policy) {
    Engine<Integer> a = engine("a", 1);
    runtime.<@Nullable Void>enter(
        "p",
        0,
        () -> {
          try (TaskScope<Integer> scope = runtime.scope(ScopeOptions.of(policy).name("work"))) {
            Fork<Integer> child = scope.fork(EAGER.name("c"), callingOnce(1, a));
            Throwable thrown = catchThrowable(() -> a.call(0, i -> scope.join()));
            assertFound(
                child.failure(),
                "task 'c' waits for an instance of engine 'a'",
                "task 'p', in a call of engine 'a', waits for the children of scope 'work'");
            assertThat(thrown).isSameAs(policy == ScopePolicy.COLLECT ? null : child.failure());
          }
          return null;
        });
    assertThat(a.<Integer>call(0, i -> i)).isEqualTo(1);
  }

  @ParameterizedTest
  @EnumSource(ScopePolicy.class)
  void aJoinInACallForWhoseInstanceAChildWaits(ScopePolicy policy) {
    Engine<Integer> a = engine("a", 1);
    runtime.<@Nullable Void>enter(
        "p",
        0,
        () -> {
          try (TaskScope<Integer> scope = runtime.scope(ScopeOptions.of(policy).name("work"))) {
            assertThatIllegalStateException()
                .isThrownBy(
                    () ->
                        a.call(
                            0,
                            i -> {
                              scope.fork(EAGER.name("c"), calling(a));
                              waits(a);
                              return scope.join();
                            }))
                .withMessageContainingAll(
                    "joining scope 'work' would wait for ever",
                    "task 'p', in a call of engine 'a', waits for the children of scope 'work'",
                    "task 'c' waits for an instance of engine 'a'",
                    "outside");
            assertThat(scope.join()).as("outside of the call").containsExactly(1);
          }
          return null;
        });
  }

  @Test
  void aCallInWhichAScopeIsClosedThatAChildNeeds() {
    Engine<Integer> a = engine("a", 1);
    runtime.<@Nullable Void>enter(
        "p",
        0,
        () -> {
          TaskScope<Integer> scope = runtime.scope();
          Fork<Integer> child = scope.fork(EAGER, callingOnce(1, a));
          assertThat(
                  a.<Integer>call(
                      0,
                      i -> {
                        scope.close(); // cancels the child, whose wait ends by that
                        return i;
                      }))
              .isEqualTo(1);
          assertThat(child.state()).isEqualTo(Fork.State.CANCELLED);
          return null;
        });
  }

  @Test
  void aChildThatClosesTheEngineInWhoseCallItsScopeIsClosed() {
    Engine<Integer> a = engine("a", 1);
    runtime.<@Nullable Void>enter(
        "p",
        0,
        () -> {
          TaskScope<Integer> scope = runtime.scope(ScopeOptions.DEFAULT.name("work"));
          AtomicReference<@Nullable Throwable> refused = new AtomicReference<>();
          a.<@Nullable Void>call(
              0,
              i -> {
                scope.fork(
                    EAGER.name("closer"),
                    () -> {
                      refused.set(catchThrowable(a::close)); // does not obey cancellation
                      return 1;
                    });
                Eventually.holds("it closes", () -> WaitGraph.size() == 1);
                scope.close();
                return null;
              });
          assertFound(refused.get(), "closing it", "task 'closer'", "scope 'work'");
          return null;
        });
  }

  @Test
  void aChildThatRunsInPlaceInTheCall() {
    try (TaskRuntime still = TaskRuntime.open(TaskConfig.DEFAULT, Stealing.NEVER)) {
      Engine<Integer> a = still.engine("a", ThreadRule.ONE_AT_A_TIME, () -> 1, EngineLimits.of(1));
      still.<@Nullable Void>enter(
          "p",
          0,
          () -> {
            try (TaskScope<Integer> scope = still.scope()) {
              Fork<Integer> child = scope.fork(ForkOptions.named("c"), calling(a));
              assertThatExceptionOfType(EngineException.class)
                  .isThrownBy(() -> a.call(0, i -> scope.join()))
                  .isSameAs(child.failure());
              assertFound(child.failure(), "task 'c'", "task 'p', in a call of engine 'a'");
            }
            return null;
          });
    }
  }

  @Test
  void aForeignThreadIsNoDifferent() throws Exception {
    Engine<Integer> a = engine("a", 1);
    CompletableFuture<@Nullable Throwable> thrown = new CompletableFuture<>();
    Thread foreign =
        Thread.ofPlatform()
            .start(
                () ->
                    thrown.complete(
                        runtime.enter(
                            "foreign",
                            0,
                            () -> {
                              try (TaskScope<Integer> scope = runtime.scope()) {
                                scope.fork(callingOnce(1, a));
                                return catchThrowable(() -> a.call(0, i -> scope.join()));
                              }
                            })));
    assertFound(thrown.get(), "task 'foreign', in a call of engine 'a'");
    foreign.join();
  }

  static List<Placement> placements() {
    return List.of(Placement.FREE, Placement.INITIAL, Placement.WITH_PARENT);
  }

  @ParameterizedTest
  @MethodSource("placements")
  void whereverTheChildRuns(Placement placement) {
    Engine<Integer> a = engine("a", 1);
    try (TaskScope<@Nullable Throwable> outer = runtime.scope()) {
      outer.fork(
          () -> {
            try (TaskScope<Integer> scope = runtime.scope()) {
              scope.fork(ForkOptions.DEFAULT.placement(placement), callingOnce(1, a));
              return catchThrowable(() -> a.call(0, i -> scope.join()));
            }
          });
      assertFound(outer.join().getFirst(), "engine 'a'");
    }
  }

  @Test
  void aChildInAStrand() {
    Engine<Integer> a = engine("a", 1);
    Placement serial = new Placement.Serial(runtime.strand("s"));
    try (TaskScope<@Nullable Throwable> outer = runtime.scope()) {
      outer.fork(
          ForkOptions.DEFAULT.placement(serial),
          () -> {
            try (TaskScope<Integer> scope = runtime.scope()) {
              scope.fork(ForkOptions.DEFAULT.placement(serial), callingOnce(1, a));
              return catchThrowable(() -> a.call(0, i -> scope.join()));
            }
          });
      assertFound(outer.join().getFirst(), "engine 'a'");
    }
  }

  // --- through more

  @Test
  void aGrandchild() {
    Engine<Integer> a = engine("a", 1);
    try (TaskScope<@Nullable Throwable> outer = runtime.scope()) {
      outer.fork(
          () -> {
            try (TaskScope<Integer> scope = runtime.scope()) {
              scope.fork(
                  () -> {
                    try (TaskScope<Integer> inner = runtime.scope()) {
                      inner.fork(EAGER.name("grandchild"), callingOnce(1, a));
                      return inner.join().getFirst();
                    }
                  });
              return catchThrowable(() -> a.call(0, i -> scope.join()));
            }
          });
      assertFound(outer.join().getFirst(), "task 'grandchild'");
    }
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void aChildBehindAStrangerWhoNeedsTheCall(boolean joinsLast) {
    Engine<Integer> a = engine("a", 1);
    Engine<Integer> b = engine("b", 1);
    CountDownLatch inB = new CountDownLatch(1);
    CountDownLatch inA = new CountDownLatch(1);
    List<Throwable> found = new ArrayList<>();
    try (TaskScope<Integer> all = runtime.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
      Fork<Integer> stranger =
          all.fork(
              EAGER.name("q"),
              () ->
                  b.call(
                      0,
                      i -> {
                        inB.countDown();
                        TaskScopeTest.awaitQuietly(inA);
                        return a.<Integer>call(0, j -> j);
                      }));
      Fork<Integer> parent =
          all.fork(
              EAGER.name("p"),
              () -> {
                try (TaskScope<Integer> scope = runtime.scope()) {
                  TaskScopeTest.awaitQuietly(inB);
                  return a.call(
                      0,
                      i -> {
                        scope.fork(EAGER.name("c"), joinsLast ? calling(b) : callingOnce(2, b));
                        if (joinsLast) {
                          waits(b);
                        }
                        inA.countDown();
                        waits(a);
                        return scope.join().getFirst();
                      });
                }
              });
      all.join();
      for (Fork<Integer> each : List.of(stranger, parent)) {
        Throwable failure = each.failure();
        if (failure != null) {
          found.add(failure);
        }
      }
    }
    assertThat(found)
        .singleElement()
        .satisfies(
            failure ->
                assertThat(failure)
                    .hasMessageContainingAll("would wait for ever", "'q'", "'p'", "'c'"));
  }

  @Test
  void aChildThatAwaitsACallOnAnOwnerWhichNeedsTheEngine() {
    Engine<Integer> a = engine("a", 1);
    Owner owner = runtime.owner("x", Role.OWNER);
    try (TaskScope<@Nullable Throwable> outer = runtime.scope()) {
      outer.fork(
          () -> {
            try (TaskScope<Integer> scope = runtime.scope()) {
              scope.fork(
                  () -> {
                    Eventually.holds("the parent joins", () -> WaitGraph.size() == 1);
                    return owner.call(calling(a)).await();
                  });
              return catchThrowable(() -> a.call(0, i -> scope.join()));
            }
          });
      assertThat(outer.join().getFirst()).hasMessageContainingAll("engine 'a'", "'call-x'");
    }
  }

  @Test
  void aChildThatClosesTheEngine() {
    Engine<Integer> a = engine("a", 1);
    try (TaskScope<@Nullable Throwable> outer = runtime.scope()) {
      outer.fork(
          () -> {
            try (TaskScope<Integer> scope = runtime.scope()) {
              scope.fork(
                  () -> {
                    Eventually.holds("the parent joins", () -> WaitGraph.size() == 1);
                    a.close();
                    return 1;
                  });
              return catchThrowable(() -> a.call(0, i -> scope.join()));
            }
          });
      assertFound(outer.join().getFirst(), "closing it");
    }
  }

  @Test
  void aRuntimeWhoseCloseWasRefusedIsClosedAgain() {
    Engine<Integer> a = engine("a", 1);
    TaskRuntime other = TaskRuntime.open(TaskConfig.DEFAULT);
    AtomicInteger destroyed = new AtomicInteger();
    EngineFactory<Integer> factory =
        new EngineFactory<>() {
          @Override
          public Integer create() {
            return 1;
          }

          @Override
          public void destroy(Integer instance) {
            destroyed.incrementAndGet();
          }
        };
    Engine<Integer> b = other.engine("b", ThreadRule.OWNER_ONLY, factory, EngineLimits.of(1));
    CountDownLatch inA = new CountDownLatch(1);
    try (TaskScope<Integer> all = runtime.scope()) {
      all.fork(
          EAGER,
          () ->
              a.call(
                  0,
                  i -> {
                    inA.countDown();
                    waits(a);
                    assertThatExceptionOfType(EngineException.class)
                        .isThrownBy(other::close)
                        .withMessageContaining("closing it would wait for ever");
                    return i;
                  }));
      TaskScopeTest.awaitQuietly(inA);
      all.fork(EAGER, () -> b.call(0, i -> a.<Integer>call(0, j -> j)));
      assertThat(all.join()).containsExactly(1, 1);
    }
    assertThat(destroyed).hasValue(0);
    other.close();
    assertThat(destroyed).hasValue(1);
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void aScopeThatIsJoinedOnAnOwnersThreadWhichAChildNeeds(boolean joinsLast) {
    Owner owner = runtime.owner("x", Role.OWNER);
    try (TaskScope<@Nullable Throwable> outer = runtime.scope()) {
      outer.fork(
          () -> {
            try (TaskScope<Integer> scope = runtime.scope(ScopeOptions.DEFAULT.name("work"))) {
              return owner.<@Nullable Throwable>callLent(
                  () -> {
                    scope.fork(
                        EAGER,
                        () -> {
                          if (!joinsLast) {
                            Eventually.holds("it joins", () -> WaitGraph.size() == 2);
                          }
                          return owner.call(() -> 1).await();
                        });
                    if (joinsLast) {
                      Eventually.holds("it waits", () -> WaitGraph.size() == 2);
                    }
                    return catchThrowable(scope::join);
                  });
            }
          });
      assertThat(outer.join().getFirst())
          .isInstanceOf(IllegalStateException.class)
          .hasMessageContainingAll("on the thread of owner 'x'", "scope 'work'");
    }
  }

  @Test
  void joinsOnTwoOwnersThreadsOfChildrenThatAreBoundToTheOther() {
    Owner one = runtime.owner("one", Role.OWNER);
    Owner two = runtime.owner("two", Role.OWNER);
    CountDownLatch both = new CountDownLatch(2);
    Completion<@Nullable Throwable> first = one.call(joiningBoundTo(two, both));
    Completion<@Nullable Throwable> second = two.call(joiningBoundTo(one, both));
    List<Throwable> thrown = new ArrayList<>();
    for (Completion<@Nullable Throwable> each : List.of(first, second)) {
      Throwable failure = each.await();
      if (failure != null) {
        thrown.add(failure);
      }
    }
    assertThat(thrown)
        .isNotEmpty()
        .allSatisfy(
            failure ->
                assertThat(failure)
                    .isInstanceOf(IllegalStateException.class)
                    .hasMessageContainingAll("would wait for ever", "'one'", "'two'"));
  }

  private TaskBody<@Nullable Throwable> joiningBoundTo(Owner other, CountDownLatch both) {
    return () -> {
      both.countDown();
      TaskScopeTest.awaitQuietly(both);
      try (TaskScope<Integer> scope = runtime.scope()) {
        scope.fork(ForkOptions.DEFAULT.placement(new Placement.Bound(other)), () -> 1);
        return catchThrowable(scope::join);
      }
    };
  }

  // --- frames

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void aFrameThatCallsTheEngineInWhoseCallItIsJoined(boolean joinsLast) {
    try (TaskRuntime eager = TaskRuntime.open(TaskConfig.DEFAULT, Stealing.ALWAYS)) {
      Engine<Integer> a = eager.engine("a", ThreadRule.ONE_AT_A_TIME, () -> 1, EngineLimits.of(1));
      eager.<@Nullable Void>enter(
          "p",
          0,
          () -> {
            try (TaskScope<Integer> scope = eager.scope(ScopeOptions.DEFAULT.name("work"))) {
              LongFork calls = (forks, n) -> call(a, joinsLast ? 0 : 1);
              LongFork joins =
                  (forks, n) -> {
                    LongFrame frame = forks.fork(calls, n);
                    if (joinsLast) {
                      waits(a);
                    }
                    return forks.join(frame);
                  };
              Throwable thrown = catchThrowable(() -> a.call(0, i -> scope.forkJoin(joins, 1)));
              assertFound(thrown, "task 'work-frame'", "task 'p', in a call of engine 'a'");
            }
            return null;
          });
    }
  }

  private static long call(Engine<Integer> engine, int onceWaits) {
    Eventually.holds("others wait", () -> WaitGraph.size() >= onceWaits);
    return engine.<Integer>call(0, i -> i);
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 1, 2})
  void aFrameOfAFrame(int last) {
    try (TaskRuntime eager = TaskRuntime.open(TaskConfig.DEFAULT, Stealing.ALWAYS)) {
      Engine<Integer> a = eager.engine("a", ThreadRule.ONE_AT_A_TIME, () -> 1, EngineLimits.of(1));
      eager.<@Nullable Void>enter(
          "p",
          0,
          () -> {
            try (TaskScope<Integer> scope = eager.scope()) {
              CountDownLatch innermostWaits = new CountDownLatch(last == 0 ? 0 : 1);
              LongFork innermost =
                  (forks, n) -> {
                    if (last == 0) {
                      Eventually.holds("all join", () -> WaitGraph.size() == 2);
                    }
                    return a.<Integer>call(0, i -> i);
                  };
              LongFork middle =
                  (forks, n) -> {
                    LongFrame frame = forks.fork(innermost, n);
                    if (last != 0) {
                      waits(a);
                      innermostWaits.countDown();
                    }
                    if (last == 1) {
                      Eventually.holds("the outermost joins", () -> WaitGraph.size() == 2);
                    }
                    return forks.join(frame);
                  };
              LongFork outermost =
                  (forks, n) -> {
                    LongFrame frame = forks.fork(middle, n);
                    TaskScopeTest.awaitQuietly(innermostWaits);
                    if (last == 2) {
                      Eventually.holds("the middle joins", () -> WaitGraph.size() == 2);
                    }
                    return forks.join(frame);
                  };
              assertFound(
                  catchThrowable(() -> a.call(0, i -> scope.forkJoin(outermost, 1))),
                  "task 'p', in a call of engine 'a'");
            }
            return null;
          });
    }
  }

  // --- what is no circle, or not for certain

  @Test
  void anInstanceThatIsHeldOutsideOfTheCircle() {
    Engine<Integer> a = engine("a", 2);
    CountDownLatch inside = new CountDownLatch(1);
    CountDownLatch hold = new CountDownLatch(1);
    try (TaskScope<Integer> all = runtime.scope()) {
      all.fork(
          EAGER,
          () ->
              a.call(
                  0,
                  i -> {
                    inside.countDown();
                    TaskScopeTest.awaitQuietly(hold);
                    return 7;
                  }));
      TaskScopeTest.awaitQuietly(inside);
      all.fork(
          EAGER,
          () -> {
            try (TaskScope<Integer> scope = runtime.scope()) {
              scope.fork(EAGER, callingOnce(1, a));
              return a.call(0, i -> scope.join().getFirst());
            }
          });
      Eventually.holds("both wait", () -> WaitGraph.size() == 2);
      hold.countDown();
      assertThat(all.join()).containsExactly(7, 1);
    }
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void aSiblingThatMaySucceedFirst(boolean succeeds) {
    Engine<Integer> a = engine("a", 1);
    CountDownLatch hold = new CountDownLatch(1);
    try (TaskScope<@Nullable Throwable> outer = runtime.scope()) {
      AtomicReference<Fork<Integer>> stuck = new AtomicReference<>();
      outer.fork(
          EAGER.name("p"),
          () -> {
            try (TaskScope<Integer> scope =
                runtime.scope(ScopeOptions.of(ScopePolicy.FIRST_SUCCESS))) {
              stuck.set(scope.fork(EAGER.name("c"), callingOnce(1, a)));
              scope.fork(
                  EAGER,
                  () -> {
                    TaskScopeTest.awaitQuietly(hold);
                    if (!succeeds) {
                      throw new EngineException("sibling", "failed", null);
                    }
                    return 5;
                  });
              return catchThrowable(
                  () -> assertThat(a.<List<Integer>>call(0, i -> scope.join())).containsExactly(5));
            }
          });
      waits(a);
      assertThat(Eventually.holdsWithin(Duration.ofMillis(50), () -> a.stats().waiting() == 0))
          .as("it is not refused while there is hope")
          .isFalse();
      hold.countDown();
      Throwable thrown = outer.join().getFirst();
      if (succeeds) {
        assertThat(thrown).isNull();
        assertThat(stuck.get().state()).isEqualTo(Fork.State.CANCELLED);
      } else {
        assertFound(thrown, "task 'c' waits for an instance of engine 'a'", "task 'p'");
        assertThat(thrown).isSameAs(stuck.get().failure());
      }
    }
  }

  @Test
  void aSiblingThatBeginsToWaitInTheSameCircle() {
    Engine<Integer> a = engine("a", 1);
    CountDownLatch hold = new CountDownLatch(1);
    try (TaskScope<@Nullable Throwable> outer = runtime.scope()) {
      outer.fork(
          EAGER,
          () -> {
            try (TaskScope<Integer> scope =
                runtime.scope(ScopeOptions.of(ScopePolicy.FIRST_SUCCESS))) {
              scope.fork(EAGER, callingOnce(1, a));
              scope.fork(
                  EAGER,
                  () -> {
                    TaskScopeTest.awaitQuietly(hold);
                    return a.<Integer>call(0, i -> i);
                  });
              return catchThrowable(() -> a.call(0, i -> scope.join()));
            }
          });
      waits(a);
      hold.countDown();
      assertFound(outer.join().getFirst(), "engine 'a'");
    }
  }

  /** Two tasks in opposite order, one of which a sibling may yet end. */
  @ParameterizedTest
  @EnumSource
  void twoEnginesAndASibling(Sibling sibling) {
    Engine<Integer> a = engine("a", 1);
    Engine<Integer> b = engine("b", 1);
    CountDownLatch both = new CountDownLatch(2);
    CountDownLatch hold = new CountDownLatch(1);
    try (TaskScope<Integer> all = runtime.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
      AtomicReference<Fork<Integer>> ba = new AtomicReference<>();
      Fork<Integer> ab = all.fork(EAGER.name("ab"), nested(a, b, both));
      Fork<Integer> first =
          all.fork(
              EAGER,
              () -> {
                try (TaskScope<Integer> scope =
                    runtime.scope(ScopeOptions.of(ScopePolicy.FIRST_SUCCESS))) {
                  scope.fork(EAGER, () -> sibling.end(hold, b));
                  ba.set(scope.fork(EAGER.name("ba"), nested(b, a, both)));
                  TaskScopeTest.awaitQuietly(both);
                  waits(a);
                  waits(b);
                  hold.countDown();
                  return scope.join().getFirst();
                }
              });
      all.join();
      switch (sibling) {
        case SUCCEEDS -> {
          assertThat(first.get()).isEqualTo(5);
          assertThat(ab.get()).as("went on when the other was cancelled").isEqualTo(2);
        }
        case FAILS, CALLS_TOO -> {
          assertThat(List.of(ab, ba.get()))
              .filteredOn(each -> each.state() == Fork.State.FAILED)
              .singleElement()
              .satisfies(each -> assertFound(each.failure(), "task 'ab'", "task 'ba'"));
        }
      }
    }
  }

  /** What becomes of the sibling that might end a circle. */
  enum Sibling {
    SUCCEEDS,
    FAILS,
    CALLS_TOO;

    int end(CountDownLatch hold, Engine<Integer> engine) {
      TaskScopeTest.awaitQuietly(hold);
      return switch (this) {
        case SUCCEEDS -> 5;
        case FAILS -> throw new EngineException("sibling", "failed", null);
        case CALLS_TOO -> engine.<Integer>call(0, i -> i);
      };
    }
  }

  private static TaskBody<Integer> nested(
      Engine<Integer> outer, Engine<Integer> inner, CountDownLatch all) {
    return () ->
        outer.call(
            0,
            i -> {
              all.countDown();
              TaskScopeTest.awaitQuietly(all);
              return i + inner.<Integer>call(0, j -> j);
            });
  }

  @Test
  void aScopesDeadlineEndsIt() {
    Engine<Integer> a = engine("a", 1);
    try (TaskScope<@Nullable Throwable> outer = runtime.scope()) {
      outer.fork(
          EAGER,
          () -> {
            ScopeOptions soon = ScopeOptions.DEFAULT.deadline(Duration.ofMillis(200));
            try (TaskScope<Integer> scope = runtime.scope(soon)) {
              scope.fork(EAGER, callingOnce(1, a));
              return catchThrowable(() -> a.call(0, i -> scope.join()));
            }
          });
      assertThat(outer.join().getFirst()).isInstanceOf(DeadlineExceededException.class);
    }
  }

  @Test
  void aDeadlineFurtherOutEndsIt() {
    Engine<Integer> a = engine("a", 1);
    Engine<Integer> b = engine("b", 1);
    CountDownLatch both = new CountDownLatch(2);
    try (TaskScope<Integer> all = runtime.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
      ForkOptions soon = EAGER.deadline(Duration.ofMillis(200));
      Fork<Integer> late =
          all.fork(
              soon,
              () -> {
                try (TaskScope<Integer> scope = runtime.scope()) {
                  scope.fork(EAGER, nested(a, b, both));
                  return scope.join().getFirst();
                }
              });
      Fork<Integer> other = all.fork(EAGER, nested(b, a, both));
      all.join();
      assertThat(late.failure()).isInstanceOf(DeadlineExceededException.class);
      assertThat(other.get()).as("went on then").isEqualTo(2);
    }
  }

  /** A foreign thread that was interrupted is about to go on, also while it has not noticed yet. */
  @Test
  void anInterruptedForeignThreadIsNoPartOfACircle() throws Exception {
    WaitGraph.Held mine = held("mine");
    WaitGraph.Held theirs = held("theirs");
    CountDownLatch entered = new CountDownLatch(1);
    CountDownLatch leave = new CountDownLatch(1);
    Thread foreign =
        Thread.ofPlatform()
            .start(
                () ->
                    runtime.<@Nullable Void>enter(
                        "foreign",
                        0,
                        () -> {
                          FakeWait wait = new FakeWait(theirs, stuck -> stuck.test(mine));
                          WaitGraph.enter(wait);
                          Thread.currentThread().interrupt();
                          entered.countDown();
                          while (leave.getCount() != 0) {
                            Thread.onSpinWait(); // parking would say that it noticed
                          }
                          WaitGraph.leave(wait);
                          return null;
                        }));
    TaskScopeTest.awaitQuietly(entered);
    FakeWait wait = new FakeWait(mine, stuck -> stuck.test(theirs));
    Throwable refused = catchThrowable(() -> WaitGraph.enter(wait));
    WaitGraph.leave(wait);
    leave.countDown();
    foreign.join();
    assertThat(refused).isNull();
  }

  private static WaitGraph.Held held(String name) {
    return new WaitGraph.Held() {
      @Override
      String where() {
        return name;
      }
    };
  }

  private static final class FakeWait extends WaitGraph.Wait {
    private final Predicate<Predicate<WaitGraph.Held>> needs;

    FakeWait(WaitGraph.Held holds, Predicate<Predicate<WaitGraph.Held>> needs) {
      super(Task.current(), new WaitGraph.In(holds, Task.current().frames), true);
      this.needs = needs;
    }

    @Override
    boolean isDone() {
      return false;
    }

    @Override
    boolean isHopeless(Predicate<WaitGraph.Held> stuck) {
      return needs.test(stuck);
    }

    @Override
    String what() {
      return "what is held";
    }

    @Override
    IllegalStateException refusal(String circle) {
      return new IllegalStateException(circle);
    }
  }

  // --- at random

  /** In one order nothing is refused; else nothing hangs. */
  @ParameterizedTest(name = "seed {0}")
  @MethodSource("io.fairlead.task.Seeds#seeds")
  @Timeout(120)
  void randomJoinsInCallsEndAndInOneOrderNothingIsFound(long seed) {
    SplittableRandom random = new SplittableRandom(seed);
    for (int round = 0; round < 6; round++) {
      boolean ordered = round % 2 == 0;
      List<Engine<Integer>> engines =
          List.of(
              engine("a", 1 + random.nextInt(2)),
              engine("b", 1 + random.nextInt(2)),
              engine("c", 1));
      AtomicInteger phantoms = new AtomicInteger();
      try (TaskScope<Integer> scope = runtime.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
        for (int t = 0; t < 8; t++) {
          SplittableRandom own = random.split();
          Fork<Integer> fork =
              scope.fork(
                  () -> {
                    for (int i = 0; i < 10; i++) {
                      Nest nest = new Nest(runtime, engines, ordered);
                      Throwable thrown = catchThrowable(() -> nest.run(own, -1, 0));
                      if (thrown instanceof TaskCancelledException cancelled) {
                        throw cancelled;
                      }
                      phantoms.addAndGet(thrown == null ? 0 : 1);
                      if (thrown != null) {
                        assertThat(thrown.getMessage()).containsAnyOf("for ever", "from inside");
                      }
                    }
                    return 1;
                  });
          if (random.nextInt(6) == 0) {
            fork.task().cancel(null);
          }
        }
        scope.join();
        assertThat(scope.forks())
            .as("seed " + seed + " round " + round)
            .allMatch(
                fork ->
                    fork.state() == Fork.State.SUCCEEDED
                        || fork.failure() instanceof TaskCancelledException);
        if (ordered) {
          assertThat(phantoms).as("seed " + seed + " round " + round).hasValue(0);
        }
      }
      for (Engine<Integer> engine : engines) {
        assertThat(engine.stats().busy() + engine.stats().waiting()).isZero();
        engine.close();
      }
    }
  }

  private record Nest(TaskRuntime runtime, List<Engine<Integer>> engines, boolean ordered) {
    int run(SplittableRandom random, int last, int depth) {
      int at = ordered ? last + 1 + random.nextInt(2) : random.nextInt(engines.size());
      if (at >= engines.size() || depth == 3) {
        return depth;
      }
      Engine<Integer> engine = engines.get(at);
      if (random.nextInt(4) == 0) {
        Eventually.suspend();
      }
      return switch (random.nextInt(4)) {
        case 0 -> engine.<Integer>call(0, i -> run(random, at, depth + 1));
        case 1 -> {
          ScopePolicy policy =
              random.nextBoolean() ? ScopePolicy.ALL_SUCCEED : ScopePolicy.FIRST_SUCCESS;
          try (TaskScope<Integer> scope = runtime.scope(ScopeOptions.of(policy))) {
            for (int i = 0; i <= random.nextInt(3); i++) {
              SplittableRandom own = random.split();
              scope.fork(EAGER.eager(random.nextBoolean()), () -> run(own, at, depth + 1));
            }
            yield engine.<Integer>call(0, i -> scope.join().getFirst());
          }
        }
        case 2 -> {
          try (TaskScope<Integer> scope = runtime.scope()) {
            LongFork inner = (forks, n) -> run(new SplittableRandom(n), at, depth + 1);
            LongFork outer =
                (forks, n) -> {
                  LongFrame frame = forks.fork(inner, n);
                  long mine = run(new SplittableRandom(n + 1), at, depth + 1);
                  return mine + engine.<Long>call(0, i -> forks.join(frame));
                };
            yield (int) scope.forkJoin(outer, random.nextLong());
          }
        }
        default -> {
          try (TaskScope<Integer> scope = runtime.scope()) {
            SplittableRandom own = random.split();
            scope.fork(() -> run(own, last, depth + 1));
            yield scope.join().getFirst();
          }
        }
      };
    }
  }
}
