package io.fairlead.task;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatExceptionOfType;

import io.fairlead.fault.EngineException;
import io.fairlead.fault.TaskCancelledException;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.MethodSource;

/** Waits for each other through engines and owners are found, and nothing else is. */
@Timeout(60)
class EngineDeadlockTest {
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

  private Engine<Integer> engine(String name, ThreadRule rule, int instances) {
    return runtime.engine(name, rule, () -> 1, EngineLimits.of(instances));
  }

  /** Calls the outer engine and, once all have done so, the inner one from within. */
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

  private static List<Throwable> failures(TaskScope<Integer> scope) {
    return scope.forks().stream()
        .filter(fork -> fork.state() != Fork.State.SUCCEEDED)
        .<Throwable>map(Fork::failureThatIsThere)
        .toList();
  }

  @ParameterizedTest
  @EnumSource(
      value = ThreadRule.class,
      names = {"OWNER_ONLY", "ONE_AT_A_TIME"})
  void twoTasksThatCallTwoEnginesInOppositeOrder(ThreadRule rule) {
    Engine<Integer> a = engine("a", rule, 1);
    Engine<Integer> b = engine("b", rule, 1);
    for (int round = 0; round < 50; round++) {
      CountDownLatch both = new CountDownLatch(2);
      try (TaskScope<Integer> scope = runtime.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
        scope.fork(ForkOptions.named("one"), nested(a, b, both));
        scope.fork(ForkOptions.named("two"), nested(b, a, both));
        assertThat(scope.join()).as("the other one goes on").containsExactly(2);
        assertThat(failures(scope))
            .singleElement()
            .satisfies(
                failure ->
                    assertThat(failure)
                        .isInstanceOf(EngineException.class)
                        .hasMessageContaining("would wait for ever")
                        .hasMessageContaining("task 'one', in a call of engine 'a'")
                        .hasMessageContaining("waits for an instance of engine 'b'")
                        .hasMessageContaining("task 'two', in a call of engine 'b'")
                        .hasMessageContaining("waits for an instance of engine 'a'")
                        .hasMessageContaining("in one order only"));
      }
      assertThat(a.stats().busy() + b.stats().busy()).isZero();
    }
  }

  @Test
  void aRingOfThreeWithChildrenBetween() {
    List<Engine<Integer>> engines =
        List.of(
            engine("a", ThreadRule.ONE_AT_A_TIME, 1),
            engine("b", ThreadRule.OWNER_ONLY, 1),
            engine("c", ThreadRule.ONE_AT_A_TIME, 1));
    CountDownLatch all = new CountDownLatch(3);
    try (TaskScope<Integer> scope = runtime.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
      for (int i = 0; i < 3; i++) {
        Engine<Integer> mine = engines.get(i);
        Engine<Integer> next = engines.get((i + 1) % 3);
        scope.fork(
            () ->
                mine.call(
                    0,
                    x -> {
                      all.countDown();
                      TaskScopeTest.awaitQuietly(all);
                      try (TaskScope<Integer> inner = runtime.scope()) {
                        inner.fork(() -> next.call(0, y -> y));
                        return inner.join().getFirst();
                      }
                    }));
      }
      assertThat(scope.join()).hasSize(2);
      assertThat(failures(scope))
          .singleElement()
          .satisfies(
              failure -> assertThat(failure).hasMessageContainingAll("engine 'a'", "'b'", "'c'"));
    }
  }

  @Test
  void anInstanceThatComesBackIsWaitedFor() {
    Engine<Integer> a = engine("a", ThreadRule.ONE_AT_A_TIME, 2);
    Engine<Integer> b = engine("b", ThreadRule.ONE_AT_A_TIME, 1);
    CountDownLatch innocentIsInside = new CountDownLatch(1);
    CountDownLatch hold = new CountDownLatch(1);
    CountDownLatch both = new CountDownLatch(2);
    try (TaskScope<Integer> scope = runtime.scope()) {
      scope.fork(
          ForkOptions.DEFAULT.eager(true),
          () ->
              a.call(
                  0,
                  i -> {
                    innocentIsInside.countDown();
                    TaskScopeTest.awaitQuietly(hold);
                    return 7;
                  }));
      TaskScopeTest.awaitQuietly(innocentIsInside);
      scope.fork(ForkOptions.DEFAULT.eager(true), nested(a, b, both));
      scope.fork(ForkOptions.DEFAULT.eager(true), nested(b, a, both));
      Eventually.holds("both wait", () -> a.stats().waiting() + b.stats().waiting() == 2);
      hold.countDown();
      assertThat(scope.join()).containsExactly(7, 2, 2);
    }
  }

  @Test
  void anInstanceBehindItsGateIsWaitedFor() {
    AtomicReference<Completion.Source<Integer>> work = new AtomicReference<>();
    Engine<Integer> a =
        runtime.engine(
            "a",
            ThreadRule.ONE_AT_A_TIME,
            () -> 1,
            EngineLimits.of(1)
                .releaseGate(
                    task -> {
                      work.set(Completion.source());
                      return work.get().completion();
                    }));
    Engine<Integer> b = engine("b", ThreadRule.ONE_AT_A_TIME, 1);
    try (TaskScope<Integer> scope = runtime.scope()) {
      scope.fork(
          ForkOptions.DEFAULT.eager(true),
          () ->
              b.call(
                  0,
                  i -> {
                    a.<Integer>call(0, j -> j);
                    return a.<Integer>call(0, j -> j); // behind what the first call left
                  }));
      Eventually.holds("it waits", () -> a.stats().waiting() == 1);
      work.getAndSet(null).complete(1);
      Eventually.holds("its own gate", () -> work.get() != null);
      work.get().complete(1);
      assertThat(scope.join()).containsExactly(1);
    }
  }

  @Test
  void aCallOnAnOwnerThatNeedsTheCallersInstance() {
    Engine<Integer> a = engine("a", ThreadRule.ONE_AT_A_TIME, 1);
    Owner owner = runtime.owner("x", Role.OWNER);
    assertThatExceptionOfType(EngineException.class)
        .isThrownBy(
            () ->
                a.call(
                    0,
                    i ->
                        owner
                            .<Integer>call(
                                () -> {
                                  // who closes the circle is refused: the owner, not the caller
                                  Eventually.holds("the caller waits", () -> WaitGraph.size() == 1);
                                  return a.call(0, j -> j);
                                })
                            .await()))
        .withMessageContaining("would wait for ever")
        .withMessageContaining("task 'call-x'");
    assertThat(a.<Integer>call(0, i -> i)).isEqualTo(1);
  }

  @Test
  void anOwnerThatNeedsAnInstanceWhoseHolderNeedsTheOwner() {
    Engine<Integer> a = engine("a", ThreadRule.ONE_AT_A_TIME, 1);
    Owner owner = runtime.owner("x", Role.OWNER);
    CountDownLatch held = new CountDownLatch(1);
    CountDownLatch ownerWaits = new CountDownLatch(1);
    try (TaskScope<Integer> scope = runtime.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
      Fork<Integer> holder =
          scope.fork(
              ForkOptions.DEFAULT.eager(true),
              () ->
                  a.call(
                      0,
                      i -> {
                        held.countDown();
                        TaskScopeTest.awaitQuietly(ownerWaits);
                        return owner.call(() -> 5).await();
                      }));
      TaskScopeTest.awaitQuietly(held);
      Completion<Integer> command = owner.call(() -> a.call(0, i -> i + 1));
      Eventually.holds("the owner waits", () -> WaitGraph.size() == 1); // not only queued
      ownerWaits.countDown();
      scope.join();
      assertThat(holder.failure())
          .isInstanceOf(IllegalStateException.class)
          .hasMessageContaining("would never end")
          .hasMessageContaining("on the thread of owner 'x'");
      assertThat(command.await()).isEqualTo(2);
    }
  }

  @Test
  void aFactoryThatCallsItsOwnSharedEngine() {
    AtomicReference<Engine<Integer>> self = new AtomicReference<>();
    self.set(
        runtime.engine(
            "shared",
            ThreadRule.ANY_THREAD,
            () -> self.get().<Integer>call(0, i -> i),
            EngineLimits.of(1)));
    assertThatExceptionOfType(EngineException.class)
        .isThrownBy(() -> self.get().call(0, i -> i))
        .withMessageContaining("factory failed")
        .havingCause()
        .withMessageContaining("would wait for ever");
  }

  @Test
  void closingAnEngineWhoseCallWaitsForTheCaller() {
    Engine<Integer> a = engine("a", ThreadRule.ONE_AT_A_TIME, 1);
    Engine<Integer> b = engine("b", ThreadRule.OWNER_ONLY, 1);
    CountDownLatch both = new CountDownLatch(2);
    try (TaskScope<Integer> scope = runtime.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
      Fork<Integer> closer =
          scope.fork(
              ForkOptions.DEFAULT.eager(true),
              () ->
                  a.call(
                      0,
                      i -> {
                        both.countDown();
                        TaskScopeTest.awaitQuietly(both);
                        Eventually.holds("the other waits", () -> WaitGraph.size() == 1);
                        b.close();
                        return i;
                      }));
      scope.fork(ForkOptions.DEFAULT.eager(true), nested(b, a, both));
      assertThat(scope.join()).containsExactly(2);
      assertThat(closer.failure())
          .isInstanceOf(EngineException.class)
          .hasMessageContaining("closing it would wait for ever")
          .hasMessageContaining("outside of all calls");
    }
    b.close();
    assertThatExceptionOfType(EngineException.class)
        .isThrownBy(() -> b.call(0, i -> i))
        .withMessageContaining("is closed");
  }

  /** Random nesting, cancels and instances: in one order nothing is refused, else nothing hangs. */
  @ParameterizedTest(name = "seed {0}")
  @MethodSource("io.fairlead.task.Seeds#seeds")
  @Timeout(120)
  void randomNestingEndsAndInOneOrderNothingIsFound(long seed) {
    SplittableRandom random = new SplittableRandom(seed);
    for (int round = 0; round < 8; round++) {
      boolean ordered = round % 2 == 0;
      List<Engine<Integer>> engines =
          List.of(
              engine("a", ThreadRule.ONE_AT_A_TIME, 1 + random.nextInt(2)),
              engine("b", ThreadRule.OWNER_ONLY, 1 + random.nextInt(2)),
              engine("c", ThreadRule.ONE_AT_A_TIME, 1));
      AtomicInteger found = new AtomicInteger();
      try (TaskScope<Integer> scope = runtime.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
        for (int t = 0; t < 12; t++) {
          SplittableRandom own = random.split();
          Fork<Integer> fork =
              scope.fork(
                  () -> {
                    for (int i = 0; i < 20; i++) {
                      try {
                        nest(engines, own, ordered, -1, 0);
                      } catch (EngineException e) {
                        assertThat(e.getMessage()).containsAnyOf("for ever", "from inside one");
                        found.addAndGet(e.getMessage().contains("for ever") ? 1 : 0);
                      }
                    }
                    return 1;
                  });
          if (random.nextInt(6) == 0) {
            fork.task().cancel(null);
          }
        }
        scope.join();
        String where = "seed " + seed + " round " + round;
        assertThat(failures(scope)).as(where).allMatch(TaskCancelledException.class::isInstance);
        if (ordered) {
          assertThat(found).as(where + ": phantoms").hasValue(0);
        }
      }
      for (Engine<Integer> engine : engines) {
        assertThat(engine.stats().busy() + engine.stats().waiting()).isZero();
        engine.close();
      }
    }
  }

  private int nest(
      List<Engine<Integer>> engines,
      SplittableRandom random,
      boolean ordered,
      int last,
      int depth) {
    int at = ordered ? last + 1 + random.nextInt(2) : random.nextInt(engines.size());
    if (at >= engines.size() || depth == 3) {
      return depth;
    }
    return engines
        .get(at)
        .<Integer>call(
            0,
            i -> {
              if (random.nextInt(4) == 0) {
                Eventually.suspend();
              }
              if (random.nextInt(3) != 0) {
                return nest(engines, random, ordered, at, depth + 1);
              }
              try (TaskScope<Integer> scope = runtime.scope()) {
                scope.fork(() -> nest(engines, random, ordered, at, depth + 1));
                return scope.join().getFirst();
              }
            });
  }
}
