package io.fairlead.task;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatExceptionOfType;
import static org.assertj.core.api.Assertions.assertThatIllegalArgumentException;
import static org.assertj.core.api.Assertions.assertThatIllegalStateException;

import io.fairlead.fault.EngineException;
import io.fairlead.fault.TaskCancelledException;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

@Timeout(60)
class EngineTest {
  private TaskRuntime runtime;

  @BeforeEach
  void open() {
    runtime = TaskRuntime.open(TaskConfig.DEFAULT);
  }

  @AfterEach
  void close() {
    runtime.close();
    assertThat(Thread.interrupted()).as("no interrupt is left behind").isFalse();
  }

  /** A library that may be used by one thread only, and checks it. */
  private static final class Bound {
    final Thread home = Thread.currentThread();
    final AtomicInteger inside = new AtomicInteger();
    int calls;

    int use() {
      assertThat(Thread.currentThread()).isSameAs(home);
      assertThat(inside.incrementAndGet()).isEqualTo(1);
      calls++;
      inside.decrementAndGet();
      return calls;
    }
  }

  private static final class BoundFactory implements EngineFactory<Bound> {
    final List<Bound> made = new CopyOnWriteArrayList<>();
    final List<Bound> destroyed = new CopyOnWriteArrayList<>();

    @Override
    public Bound create() {
      Bound bound = new Bound();
      made.add(bound);
      return bound;
    }

    @Override
    public void destroy(Bound instance) {
      assertThat(Thread.currentThread()).isSameAs(instance.home);
      destroyed.add(instance);
    }
  }

  @Test
  void ownerOnlyInstancesLiveOnTheirThreads() {
    BoundFactory factory = new BoundFactory();
    Engine<Bound> engine =
        runtime.engine("lib", ThreadRule.OWNER_ONLY, factory, EngineLimits.of(2));
    try (TaskScope<Integer> scope = runtime.scope()) {
      for (int i = 0; i < 500; i++) {
        scope.fork(() -> engine.call(0, Bound::use));
      }
      scope.join();
    }
    assertThat(factory.made.stream().mapToInt(b -> b.calls).sum()).isEqualTo(500);
    assertThat(factory.made).hasSizeBetween(1, 2);
    assertThat(factory.made).allMatch(b -> b.home.getName().startsWith("fairlead-lib-"));
    assertThat(engine.stats().calls()).isEqualTo(500);
    engine.close();
    assertThat(factory.destroyed).containsExactlyInAnyOrderElementsOf(factory.made);
  }

  @Test
  void aPlainExecutorMayCall() throws Exception {
    BoundFactory factory = new BoundFactory();
    Engine<Bound> engine =
        runtime.engine("lib", ThreadRule.OWNER_ONLY, factory, EngineLimits.of(1));
    try (ExecutorService executor = Executors.newFixedThreadPool(4)) {
      List<Future<Integer>> futures = new ArrayList<>();
      for (int i = 0; i < 100; i++) {
        futures.add(executor.submit(() -> engine.call(0, Bound::use)));
      }
      int sum = 0;
      for (Future<Integer> future : futures) {
        sum += future.get();
      }
      assertThat(sum).isEqualTo(100 * 101 / 2);
    }
  }

  @Test
  void oneAtATimeUsesEachInstanceOnceAtATime() {
    Set<AtomicInteger> instances = ConcurrentHashMap.newKeySet();
    Engine<AtomicInteger> engine =
        runtime.engine(
            "pool",
            ThreadRule.ONE_AT_A_TIME,
            () -> {
              AtomicInteger made = new AtomicInteger();
              instances.add(made);
              return made;
            },
            EngineLimits.of(3));
    AtomicInteger most = new AtomicInteger();
    try (TaskScope<Integer> scope = runtime.scope()) {
      for (int i = 0; i < 300; i++) {
        scope.fork(
            () ->
                engine.call(
                    0,
                    inside -> {
                      most.accumulateAndGet(inside.incrementAndGet(), Math::max);
                      Eventually.suspend(); // inside the call
                      return inside.decrementAndGet();
                    }));
      }
      scope.join();
    }
    assertThat(most).hasValue(1);
    assertThat(instances).hasSizeBetween(1, 3);
  }

  @Test
  void anyThreadSharesOneInstanceInline() {
    AtomicInteger made = new AtomicInteger();
    Engine<Integer> engine =
        runtime.engine("shared", ThreadRule.ANY_THREAD, made::incrementAndGet, EngineLimits.of(4));
    Thread self = Thread.currentThread();
    assertThat(engine.<Thread>call(0, i -> Thread.currentThread())).isSameAs(self);
    try (TaskScope<Integer> scope = runtime.scope()) {
      for (int i = 0; i < 50; i++) {
        scope.fork(() -> engine.call(0, instance -> engine.<Integer>call(0, same -> same)));
      }
      assertThat(scope.join()).containsOnly(1);
    }
    engine.close();
    assertThat(made).hasValue(1);
  }

  @Test
  void contextCurrentBindsItsInstance() {
    AtomicInteger current = new AtomicInteger(9);
    EngineFactory<Integer> factory =
        new EngineFactory<>() {
          @Override
          public Integer create() {
            return 5;
          }

          @Override
          public Binding binding(Integer instance) {
            return new Binding() {
              @Override
              public long bind() {
                return current.getAndSet(instance);
              }

              @Override
              public void restore(long previous) {
                current.set((int) previous);
              }
            };
          }
        };
    Engine<Integer> engine =
        runtime.engine("ctx", ThreadRule.CONTEXT_CURRENT, factory, EngineLimits.of(1));
    assertThat(engine.<Integer>call(0, i -> current.get())).isEqualTo(5);
    assertThat(current).hasValue(9);

    Engine<Integer> without =
        runtime.engine("bare", ThreadRule.CONTEXT_CURRENT, () -> 1, EngineLimits.of(1));
    assertThatExceptionOfType(EngineException.class)
        .isThrownBy(() -> without.call(0, i -> i))
        .withMessageContaining("override binding()");
  }

  @ParameterizedTest
  @EnumSource(ThreadRule.class)
  void failuresOfTheBodyAreTheCallers(ThreadRule rule) {
    if (rule == ThreadRule.CONTEXT_CURRENT) {
      return; // as ONE_AT_A_TIME, with a binding: contextCurrentBindsItsInstance
    }
    Engine<Integer> engine = runtime.engine("e", rule, () -> 1, EngineLimits.of(1));
    assertThatIllegalArgumentException()
        .isThrownBy(
            () ->
                engine.call(
                    0,
                    i -> {
                      throw new IllegalArgumentException("as it is");
                    }))
        .withMessage("as it is");
    assertThatExceptionOfType(EngineException.class)
        .isThrownBy(
            () ->
                engine.call(
                    0,
                    i -> {
                      throw new IOException("checked");
                    }))
        .withCauseInstanceOf(IOException.class);
    assertThat(engine.<Integer>call(0, i -> i)).as("the instance was given back").isEqualTo(1);
    assertThat(engine.stats().failures()).isEqualTo(2);
    assertThat(engine.stats().busy()).isZero();
  }

  @ParameterizedTest
  @EnumSource(ThreadRule.class)
  void aFactoryThatFailsIsTriedAgain(ThreadRule rule) {
    if (rule == ThreadRule.CONTEXT_CURRENT) {
      return; // fails for want of a binding: contextCurrentBindsItsInstance
    }
    AtomicInteger tries = new AtomicInteger();
    Engine<Integer> engine =
        runtime.engine(
            "flaky",
            rule,
            () -> {
              if (tries.incrementAndGet() < 3) {
                throw new IOException("no licence");
              }
              return 7;
            },
            EngineLimits.of(1));
    for (int i = 0; i < 2; i++) {
      assertThatExceptionOfType(EngineException.class)
          .isThrownBy(() -> engine.call(0, x -> x))
          .withMessageContaining("factory failed")
          .withCauseInstanceOf(IOException.class);
    }
    assertThat(engine.<Integer>call(0, x -> x)).isEqualTo(7);
  }

  // --- waiting for an instance

  /** Occupies the engine until the latch opens. */
  private Fork<Integer> occupy(TaskScope<Integer> scope, Engine<?> engine, CountDownLatch hold) {
    AtomicBoolean inside = new AtomicBoolean();
    Fork<Integer> fork =
        scope.fork(
            () ->
                engine.call(
                    0,
                    i -> {
                      inside.set(true);
                      TaskScopeTest.awaitQuietly(hold);
                      return 0;
                    }));
    Eventually.holds("occupied", inside::get);
    return fork;
  }

  @ParameterizedTest
  @EnumSource(
      value = ThreadRule.class,
      names = {"OWNER_ONLY", "ONE_AT_A_TIME"})
  void aFullQueueRefuses(ThreadRule rule) {
    Engine<Integer> engine = runtime.engine("e", rule, () -> 1, EngineLimits.of(1).queue(1));
    CountDownLatch hold = new CountDownLatch(1);
    try (TaskScope<Integer> scope = runtime.scope()) {
      occupy(scope, engine, hold);
      scope.fork(() -> engine.call(0, i -> i));
      Eventually.holds("one waits", () -> engine.stats().waiting() == 1);
      assertThatExceptionOfType(EngineException.class)
          .isThrownBy(() -> engine.call(0, i -> i))
          .withMessageContaining("queue of 1");
      assertThat(engine.tryCall(0, i -> i)).isEmpty();
      hold.countDown();
      assertThat(scope.join()).containsExactly(0, 1);
      assertThat(engine.stats().refusals()).isEqualTo(2);
      assertThat(engine.tryCall(0, i -> i)).isEqualTo(Optional.of(1));
    }
  }

  @Test
  void aCancelledCallerLeavesTheQueue() {
    Engine<Integer> engine =
        runtime.engine("e", ThreadRule.ONE_AT_A_TIME, () -> 1, EngineLimits.of(1));
    CountDownLatch hold = new CountDownLatch(1);
    try (TaskScope<Integer> scope = runtime.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
      occupy(scope, engine, hold);
      Fork<Integer> impatient = scope.fork(() -> engine.call(0, i -> i));
      Eventually.holds("it waits", () -> engine.stats().waiting() == 1);
      impatient.task().cancel(null);
      Eventually.holds("it left", () -> engine.stats().waiting() == 0);
      hold.countDown();
      scope.join();
      assertThat(impatient.failure()).isInstanceOf(TaskCancelledException.class);
    }
    assertThat(engine.<Integer>call(0, i -> i)).isEqualTo(1);
  }

  @ParameterizedTest
  @EnumSource(
      value = ThreadRule.class,
      names = {"OWNER_ONLY", "ONE_AT_A_TIME"})
  void aCallFromInsideItselfIsFound(ThreadRule rule) {
    Engine<Integer> engine = runtime.engine("self", rule, () -> 1, EngineLimits.of(2));
    EngineCall<Integer, Integer> nested = i -> engine.call(0, j -> j);
    EngineCall<Integer, Integer> throughAChild =
        i -> {
          try (TaskScope<Integer> scope = runtime.scope()) {
            scope.fork(() -> engine.call(0, j -> j));
            return scope.join().getFirst();
          }
        };
    for (EngineCall<Integer, Integer> body : List.of(nested, throughAChild)) {
      assertThatExceptionOfType(EngineException.class)
          .isThrownBy(() -> engine.call(0, body)) // from a foreign thread
          .withMessageContaining("from inside one of its own calls");
      assertThatExceptionOfType(EngineException.class)
          .isThrownBy(() -> runtime.enter("t", 0, () -> engine.call(0, body)))
          .withMessageContaining("from inside one of its own calls");
    }
    assertThatIllegalStateException()
        .isThrownBy(
            () ->
                engine.call(
                    0,
                    i -> {
                      engine.close();
                      return 1;
                    }))
        .withMessageContaining("close it outside");
  }

  @Test
  void aChildThatNobodyInTheCallWaitsForMayCall() {
    Engine<Integer> engine =
        runtime.engine("e", ThreadRule.ONE_AT_A_TIME, () -> 1, EngineLimits.of(2));
    runtime.<Void>enter(
        "p",
        0,
        () -> {
          try (TaskScope<Integer> scope = runtime.scope()) {
            CountDownLatch parentIsInside = new CountDownLatch(1);
            Fork<Integer> child =
                scope.fork(
                    () -> {
                      parentIsInside.await();
                      return engine.call(0, i -> i);
                    });
            engine.<Integer>call(
                0,
                i -> {
                  parentIsInside.countDown();
                  Eventually.holds("the child's call", () -> child.state() != Fork.State.RUNNING);
                  return i;
                });
            assertThat(scope.join()).containsExactly(1);
          }
          return null;
        });
  }

  @Test
  void engineThreadsMayCallOtherEnginesButManagersMayNot() {
    Engine<Integer> inner =
        runtime.engine("inner", ThreadRule.OWNER_ONLY, () -> 1, EngineLimits.of(1));
    Engine<Integer> outer =
        runtime.engine("outer", ThreadRule.OWNER_ONLY, () -> 2, EngineLimits.of(1));
    assertThat(outer.<Integer>call(0, i -> i + inner.<Integer>call(0, j -> j))).isEqualTo(3);
    Owner manager = runtime.owner("m", Role.DEVICE_MANAGER);
    Completion<Integer> refused = manager.call(() -> inner.call(0, i -> i));
    Eventually.holds("refused", refused::isDone);
    assertThat(refused.cause()).hasMessageContaining("must not wait");
  }

  // --- memory and the release gate

  private static final class Memory implements Admission {
    final AtomicInteger held = new AtomicInteger();
    final List<Completion.Source<AutoCloseable>> asked = new CopyOnWriteArrayList<>();
    volatile boolean roomy = true;

    @Override
    public Completion<AutoCloseable> admit(long bytes) {
      Completion.Source<AutoCloseable> source = Completion.source();
      asked.add(source);
      if (roomy) {
        grant(source);
      }
      return source.completion();
    }

    void grant(Completion.Source<AutoCloseable> source) {
      held.incrementAndGet();
      if (!source.complete(held::decrementAndGet)) {
        held.decrementAndGet();
      }
    }
  }

  @Test
  void waitsForMemoryFirstAndGivesItBack() {
    Memory memory = new Memory();
    Engine<Integer> engine =
        runtime.engine(
            "e", ThreadRule.ONE_AT_A_TIME, () -> 1, EngineLimits.of(1).admission(memory));
    assertThat(engine.<Integer>call(100, i -> memory.held.get())).isEqualTo(1);
    assertThat(memory.held).hasValue(0);
    assertThat(engine.<Integer>call(0, i -> memory.held.get())).as("asks for nothing").isZero();

    memory.roomy = false;
    assertThat(engine.tryCall(100, i -> i)).isEmpty();
    assertThat(memory.asked.getLast().completion().state())
        .as("the request was withdrawn")
        .isEqualTo(Completion.State.CANCELLED);
    try (TaskScope<Integer> scope = runtime.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
      Fork<Integer> call = scope.fork(() -> engine.call(100, i -> i));
      Eventually.holds("it asks", () -> memory.asked.size() == 3);
      assertThat(engine.<Integer>call(0, i -> i)).as("holds no instance meanwhile").isEqualTo(1);
      memory.grant(memory.asked.getLast());
      assertThat(scope.join()).containsExactly(1);
      assertThat(call.state()).isEqualTo(Fork.State.SUCCEEDED);
    }
    assertThat(memory.held).hasValue(0);
    assertThatIllegalArgumentException().isThrownBy(() -> engine.call(-1, i -> i));
  }

  @Test
  void theInstanceComesBackWhenItsWorkHasEnded() {
    AtomicReference<Completion.Source<Integer>> work = new AtomicReference<>();
    AtomicReference<Task> gated = new AtomicReference<>();
    Memory memory = new Memory();
    Engine<Integer> engine =
        runtime.engine(
            "gpu",
            ThreadRule.ONE_AT_A_TIME,
            () -> 1,
            EngineLimits.of(1)
                .admission(memory)
                .releaseGate(
                    task -> {
                      gated.set(task);
                      work.set(Completion.source());
                      return work.get().completion();
                    }));
    AtomicReference<Task> caller = new AtomicReference<>();
    engine.<Integer>call(
        10,
        i -> {
          caller.set(Task.current());
          return i;
        });
    assertThat(gated.get()).isSameAs(caller.get());
    assertThat(engine.tryCall(0, i -> i)).as("its work goes on").isEmpty();
    assertThat(memory.held).hasValue(1);
    assertThat(engine.stats().busy()).isEqualTo(1);
    work.get().complete(1);
    assertThat(memory.held).hasValue(0);
    assertThat(engine.tryCall(0, i -> i)).contains(1);
    work.get().complete(1);
  }

  @Test
  void aFailedGateMeansANewInstance() {
    AtomicInteger made = new AtomicInteger();
    List<Integer> destroyed = new CopyOnWriteArrayList<>();
    EngineFactory<Integer> factory =
        new EngineFactory<>() {
          @Override
          public Integer create() {
            return made.incrementAndGet();
          }

          @Override
          public void destroy(Integer instance) {
            destroyed.add(instance);
          }
        };
    AtomicBoolean lost = new AtomicBoolean(true);
    Engine<Integer> engine =
        runtime.engine(
            "gpu",
            ThreadRule.OWNER_ONLY,
            factory,
            EngineLimits.of(1)
                .releaseGate(
                    task ->
                        lost.getAndSet(false)
                            ? Completion.failed(new IOException("lost"))
                            : Completion.completed(null)));
    assertThat(engine.<Integer>call(0, i -> i)).isEqualTo(1);
    assertThat(engine.<Integer>call(0, i -> i)).isEqualTo(2);
    assertThat(engine.<Integer>call(0, i -> i)).isEqualTo(2);
    engine.close();
    assertThat(destroyed).containsExactly(1, 2);
  }

  // --- closing

  @ParameterizedTest
  @EnumSource(
      value = ThreadRule.class,
      names = {"OWNER_ONLY", "ONE_AT_A_TIME", "ANY_THREAD"})
  void closeWaitsForCallsInFlightAndFailsThoseThatWait(ThreadRule rule) {
    AtomicInteger destroyed = new AtomicInteger();
    AtomicBoolean ended = new AtomicBoolean();
    EngineFactory<Integer> factory =
        new EngineFactory<>() {
          @Override
          public Integer create() {
            return 1;
          }

          @Override
          public void destroy(Integer instance) {
            assertThat(ended).isTrue();
            destroyed.incrementAndGet();
          }
        };
    Engine<Integer> engine = runtime.engine("e", rule, factory, EngineLimits.of(1));
    CountDownLatch hold = new CountDownLatch(1);
    AtomicBoolean inside = new AtomicBoolean();
    try (TaskScope<Integer> scope = runtime.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
      Fork<Integer> inFlight =
          scope.fork(
              () ->
                  engine.call(
                      0,
                      i -> {
                        inside.set(true);
                        TaskScopeTest.awaitQuietly(hold);
                        ended.set(true);
                        return i;
                      }));
      Eventually.holds("in flight", inside::get);
      Fork<Integer> waiting = null;
      if (rule != ThreadRule.ANY_THREAD) {
        waiting = scope.fork(() -> engine.call(0, i -> i));
        Eventually.holds("one waits", () -> engine.stats().waiting() == 1);
      }
      Thread closer = Thread.ofVirtual().start(engine::close);
      Eventually.waits(closer);
      assertThatExceptionOfType(EngineException.class)
          .isThrownBy(() -> engine.call(0, i -> i))
          .withMessageContaining("is closed");
      hold.countDown();
      Eventually.holds("closed", () -> !closer.isAlive());
      scope.join();
      assertThat(inFlight.state()).isEqualTo(Fork.State.SUCCEEDED);
      if (waiting != null) {
        assertThat(waiting.failure()).hasMessageContaining("closed before the call's turn came");
      }
    }
    engine.close();
    assertThat(destroyed).hasValue(1);
  }

  @Test
  void aDestroyThatFailsDoesNotStopTheClose() {
    EngineFactory<Integer> factory =
        new EngineFactory<>() {
          @Override
          public Integer create() {
            return 1;
          }

          @Override
          public void destroy(Integer instance) throws Exception {
            throw new IOException("on purpose");
          }
        };
    Engine<Integer> engine =
        runtime.engine("e", ThreadRule.OWNER_ONLY, factory, EngineLimits.of(1));
    engine.<Integer>call(0, i -> i);
    engine.close();
    assertThat(engine.stats().instances()).isZero();
  }

  @Test
  void limitsAreChecked() {
    assertThatIllegalArgumentException().isThrownBy(() -> EngineLimits.of(0));
    assertThatIllegalArgumentException().isThrownBy(() -> EngineLimits.of(1).queue(-1));
  }

  // --- order, and instances that break

  @Test
  void theMostUrgentThatWaitsIsNextAndAmongEqualsTheOldest() {
    Engine<Integer> engine =
        runtime.engine("e", ThreadRule.ONE_AT_A_TIME, () -> 1, EngineLimits.of(1));
    CountDownLatch hold = new CountDownLatch(1);
    List<String> order = new CopyOnWriteArrayList<>();
    try (TaskScope<Integer> scope = runtime.scope()) {
      occupy(scope, engine, hold);
      int waiting = 0;
      for (String name : List.of("low-1", "high-1", "low-2", "high-2")) {
        ForkOptions options = ForkOptions.named(name).priority(name.startsWith("high") ? 5 : 0);
        scope.fork(
            options.eager(true),
            () ->
                engine.call(
                    0,
                    i -> {
                      order.add(Task.current().name());
                      return i;
                    }));
        int expected = ++waiting;
        Eventually.holds("it waits", () -> engine.stats().waiting() == expected);
      }
      hold.countDown();
      scope.join();
    }
    assertThat(order).containsExactly("high-1", "high-2", "low-1", "low-2");
  }

  /** Breaks when it is told to, and says so. */
  private static final class Fragile implements EngineFactory<Integer> {
    final AtomicInteger made = new AtomicInteger();
    final List<Integer> destroyed = new CopyOnWriteArrayList<>();

    @Override
    public Integer create() {
      return made.incrementAndGet();
    }

    @Override
    public void destroy(Integer instance) {
      destroyed.add(instance);
    }

    @Override
    public boolean survives(Integer instance, Throwable thrown) {
      return !(thrown instanceof IOException);
    }
  }

  @ParameterizedTest
  @EnumSource(
      value = ThreadRule.class,
      names = {"OWNER_ONLY", "ONE_AT_A_TIME", "ANY_THREAD"})
  void anInstanceThatSaysItIsBrokenIsReplaced(ThreadRule rule) {
    Fragile factory = new Fragile();
    Engine<Integer> engine = runtime.engine("e", rule, factory, EngineLimits.of(1));
    assertThatIllegalArgumentException()
        .isThrownBy(
            () ->
                engine.call(
                    0,
                    i -> {
                      throw new IllegalArgumentException("harmless");
                    }));
    assertThat(engine.<Integer>call(0, i -> i)).isEqualTo(1);
    assertThatExceptionOfType(EngineException.class)
        .isThrownBy(
            () ->
                engine.call(
                    0,
                    i -> {
                      throw new IOException("broken");
                    }));
    assertThat(engine.<Integer>call(0, i -> i)).isEqualTo(2);
    assertThat(factory.destroyed).containsExactly(1);
    engine.close();
    assertThat(factory.destroyed).containsExactly(1, 2);
  }

  @Test
  void aSharedInstanceIsReplacedOnceNobodyIsInIt() {
    Fragile factory = new Fragile();
    Engine<Integer> engine =
        runtime.engine("e", ThreadRule.ANY_THREAD, factory, EngineLimits.of(1));
    CountDownLatch hold = new CountDownLatch(1);
    try (TaskScope<Integer> scope = runtime.scope()) {
      occupy(scope, engine, hold);
      assertThatExceptionOfType(EngineException.class)
          .isThrownBy(
              () ->
                  engine.call(
                      0,
                      i -> {
                        throw new IOException("broken");
                      }));
      assertThat(engine.tryCall(0, i -> i)).as("somebody is in the broken one").isEmpty();
      Fork<Integer> first =
          scope.fork(ForkOptions.DEFAULT.eager(true), () -> engine.call(0, i -> i));
      Fork<Integer> second =
          scope.fork(ForkOptions.DEFAULT.eager(true), () -> engine.call(0, i -> i));
      Eventually.holds("both wait", () -> engine.stats().waiting() == 2);
      assertThat(factory.destroyed).isEmpty();
      hold.countDown();
      scope.join();
      assertThat(List.of(first.get(), second.get())).containsOnly(2);
    }
    assertThat(factory.destroyed).containsExactly(1);
  }

  @ParameterizedTest
  @EnumSource(
      value = ThreadRule.class,
      names = {"OWNER_ONLY", "ONE_AT_A_TIME", "ANY_THREAD"})
  void whileAnotherCallMakesTheInstanceATryGetsNothingAndAWaiterCanGiveUp(ThreadRule rule) {
    CountDownLatch hold = new CountDownLatch(1);
    CountDownLatch making = new CountDownLatch(1);
    Engine<Integer> engine =
        runtime.engine(
            "slow",
            rule,
            () -> {
              making.countDown();
              TaskScopeTest.awaitQuietly(hold);
              return 1;
            },
            EngineLimits.of(1));
    try (TaskScope<Integer> scope = runtime.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
      scope.fork(ForkOptions.DEFAULT.eager(true), () -> engine.call(0, i -> i));
      TaskScopeTest.awaitQuietly(making);
      assertThat(engine.tryCall(0, i -> i)).isEmpty();
      Fork<Integer> impatient =
          scope.fork(ForkOptions.DEFAULT.eager(true), () -> engine.call(0, i -> i));
      Eventually.holds("it waits", () -> engine.stats().waiting() == 1);
      impatient.task().cancel(null);
      Eventually.holds("it gave up", () -> impatient.state() == Fork.State.CANCELLED);
      scope.fork(ForkOptions.DEFAULT.eager(true), () -> engine.call(0, i -> i + 1));
      hold.countDown();
      assertThat(scope.join()).containsExactly(1, 2);
    }
  }

  @Test
  void anInstanceWhoseBindingCannotBeHadIsDestroyed() {
    List<Integer> destroyed = new CopyOnWriteArrayList<>();
    EngineFactory<Integer> factory =
        new EngineFactory<>() {
          @Override
          public Integer create() {
            return 1;
          }

          @Override
          public void destroy(Integer instance) {
            destroyed.add(instance);
          }
        };
    Engine<Integer> engine =
        runtime.engine("bare", ThreadRule.CONTEXT_CURRENT, factory, EngineLimits.of(1));
    assertThatExceptionOfType(EngineException.class).isThrownBy(() -> engine.call(0, i -> i));
    assertThat(destroyed).containsExactly(1);
  }

  @Test
  void theDeadlineOfAScopeEndsEveryWaitOfACall() {
    Memory memory = new Memory();
    memory.roomy = false;
    Engine<Integer> engine =
        runtime.engine("e", ThreadRule.OWNER_ONLY, () -> 1, EngineLimits.of(1).admission(memory));
    CountDownLatch hold = new CountDownLatch(1);
    try (TaskScope<Integer> holder = runtime.scope()) {
      occupy(holder, engine, hold);
      try (TaskScope<Integer> scope =
          runtime.scope(
              ScopeOptions.of(ScopePolicy.COLLECT).deadline(java.time.Duration.ofMillis(50)))) {
        Fork<Integer> forMemory =
            scope.fork(ForkOptions.DEFAULT.eager(true), () -> engine.call(10, i -> i));
        Fork<Integer> forInstance =
            scope.fork(ForkOptions.DEFAULT.eager(true), () -> engine.call(0, i -> i));
        assertThatExceptionOfType(io.fairlead.fault.DeadlineExceededException.class)
            .isThrownBy(scope::join);
        assertThat(List.of(forMemory.state(), forInstance.state()))
            .containsOnly(Fork.State.CANCELLED);
      }
      assertThat(engine.stats().waiting()).isZero();
      hold.countDown();
      holder.join();
    }
    assertThat(memory.held).hasValue(0);
  }

  @Test
  void aGateIsNotAskedWhereNoBodyBegan() {
    AtomicInteger asked = new AtomicInteger();
    Engine<Integer> engine =
        runtime.engine(
            "e",
            ThreadRule.ONE_AT_A_TIME,
            () -> {
              throw new IOException("no licence");
            },
            EngineLimits.of(1)
                .releaseGate(
                    task -> {
                      asked.incrementAndGet();
                      return Completion.completed(1);
                    }));
    assertThatExceptionOfType(EngineException.class).isThrownBy(() -> engine.call(0, i -> i));
    assertThat(asked).hasValue(0);
  }

  // --- a budget

  @Test
  void aLargeRequestDoesNotStarveBehindSmallOnes() throws Exception {
    Admission budget = Admission.upTo(100);
    AutoCloseable small = budget.admit(60).getNow();
    Completion<AutoCloseable> large = budget.admit(100);
    List<Completion<AutoCloseable>> later = new ArrayList<>();
    for (int i = 0; i < 3; i++) {
      later.add(budget.admit(10));
    }
    assertThat(later).as("not before the large one").noneMatch(Completion::isDone);
    small.close();
    small.close(); // once only
    assertThat(large.isDone()).isTrue();
    assertThat(later).noneMatch(Completion::isDone);
    large.getNow().close();
    assertThat(later).allMatch(Completion::isDone);
  }

  @Test
  void aWithdrawnRequestIsInNobodysWay() throws Exception {
    Admission budget = Admission.upTo(100);
    AutoCloseable held = budget.admit(60).getNow();
    Completion<AutoCloseable> large = budget.admit(100);
    Completion<AutoCloseable> small = budget.admit(40);
    large.cancel();
    assertThat(small.isDone()).isTrue();
    small.getNow().close();
    held.close();
    assertThat(budget.admit(100).isDone()).as("nothing is lost").isTrue();
    assertThat(budget.admit(101).cause()).hasMessageContaining("101 bytes are asked for, of 100");
    assertThatIllegalArgumentException().isThrownBy(() -> Admission.upTo(0));
  }

  @Test
  void largeAndSmallCallsOfABudgetAllEnd() {
    Engine<Integer> engine =
        runtime.engine(
            "e",
            ThreadRule.ONE_AT_A_TIME,
            () -> 1,
            EngineLimits.of(4).admission(Admission.upTo(8)));
    AtomicInteger held = new AtomicInteger();
    AtomicInteger most = new AtomicInteger();
    try (TaskScope<Integer> scope = runtime.scope()) {
      for (int i = 0; i < 200; i++) {
        int bytes = i % 7 == 0 ? 8 : 1 + i % 3;
        scope.fork(
            () ->
                engine.call(
                    bytes,
                    instance -> {
                      most.accumulateAndGet(held.addAndGet(bytes), Math::max);
                      Eventually.suspend();
                      held.addAndGet(-bytes);
                      return 1;
                    }));
      }
      assertThat(scope.join()).hasSize(200);
    }
    assertThat(most.get()).isLessThanOrEqualTo(8);
  }
}
