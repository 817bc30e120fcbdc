package io.fairlead.task;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatExceptionOfType;
import static org.assertj.core.api.Assertions.assertThatIllegalStateException;
import static org.assertj.core.api.Assertions.assertThatNullPointerException;

import io.fairlead.fault.EngineException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * However an engine is closed, whatever its calls, gates and factory do: it ends, or says why not.
 */
@Timeout(60)
class EngineCloseTest {
  private static final Duration SHORT = Duration.ofMillis(30);
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

  private static final class Factory implements EngineFactory<Integer> {
    final AtomicInteger made = new AtomicInteger();
    final List<Integer> destroyed = new CopyOnWriteArrayList<>();
    volatile Runnable onCreate = () -> {};
    volatile Runnable onDestroy = () -> {};

    @Override
    public Integer create() {
      onCreate.run();
      return made.incrementAndGet();
    }

    @Override
    public void destroy(Integer instance) {
      destroyed.add(instance);
      onDestroy.run();
    }
  }

  /** Occupies an instance until the latch opens. */
  private static void occupy(
      TaskScope<Integer> scope, Engine<Integer> engine, CountDownLatch hold) {
    CountDownLatch inside = new CountDownLatch(1);
    scope.fork(
        ForkOptions.named("holder").eager(true),
        () ->
            engine.call(
                0,
                i -> {
                  inside.countDown();
                  TaskScopeTest.awaitQuietly(hold);
                  return i;
                }));
    TaskScopeTest.awaitQuietly(inside);
  }

  @ParameterizedTest
  @EnumSource(
      value = ThreadRule.class,
      names = {"OWNER_ONLY", "ONE_AT_A_TIME", "ANY_THREAD"})
  void aCloseThatIsLimitedNamesTheCallsInFlight(ThreadRule rule) {
    Factory factory = new Factory();
    Engine<Integer> engine = runtime.engine("lib", rule, factory, EngineLimits.of(1));
    CountDownLatch hold = new CountDownLatch(1);
    try (TaskScope<Integer> scope = runtime.scope()) {
      occupy(scope, engine, hold);
      assertThatExceptionOfType(EngineException.class)
          .isThrownBy(() -> engine.close(SHORT))
          .withMessageContaining("is still closing: 1 calls in flight")
          .withMessageContaining("task 'holder' is in its body for");
      assertThatExceptionOfType(EngineException.class)
          .isThrownBy(() -> engine.call(0, i -> i))
          .withMessageContaining("is closed");
      hold.countDown();
      scope.join();
    }
    assertThat(factory.destroyed).as("nobody waits for the end any more").isEmpty();
    engine.close(Duration.ofSeconds(30));
    engine.close();
    assertThat(factory.destroyed).containsExactly(1);
  }

  @Test
  void aGateThatNeverEndsIsNamed() {
    Completion.Source<Integer> work = Completion.source();
    Engine<Integer> engine =
        runtime.engine(
            "gpu",
            ThreadRule.ONE_AT_A_TIME,
            () -> 1,
            EngineLimits.of(1).releaseGate(task -> work.completion()));
    runtime.enter("left", 0, () -> engine.<Integer>call(0, i -> i));
    assertThatExceptionOfType(EngineException.class)
        .isThrownBy(() -> engine.close(SHORT))
        .withMessageContaining("task 'left' is behind its release gate for");
    work.complete(1);
    engine.close(Duration.ofSeconds(30));
  }

  @Test
  void aCloseThatTakesLongSaysWhatItWaitsFor() {
    Engine<Integer> engine =
        runtime.engine("lib", ThreadRule.ONE_AT_A_TIME, () -> 1, EngineLimits.of(1));
    engine.sayAfter = Duration.ofMillis(1);
    List<String> said = new CopyOnWriteArrayList<>();
    Handler handler =
        new Handler() {
          @Override
          public void publish(LogRecord record) {
            said.add(record.getMessage());
          }

          @Override
          public void flush() {}

          @Override
          public void close() {}
        };
    Logger logger = Logger.getLogger(Engine.class.getName());
    logger.addHandler(handler);
    CountDownLatch hold = new CountDownLatch(1);
    try (TaskScope<Integer> scope = runtime.scope()) {
      occupy(scope, engine, hold);
      Thread closer = Thread.ofPlatform().start(engine::close);
      Eventually.holds("it says so, twice", () -> said.size() >= 2);
      hold.countDown();
      scope.join();
      Eventually.holds("closed", () -> !closer.isAlive());
    } finally {
      logger.removeHandler(handler);
    }
    assertThat(said.getFirst()).contains("'lib' is still closing").contains("task 'holder'");
  }

  @Test
  void aCloseIsNotEndedByAnInterruptAndKeepsIt() {
    Engine<Integer> engine =
        runtime.engine("lib", ThreadRule.OWNER_ONLY, () -> 1, EngineLimits.of(1));
    CountDownLatch hold = new CountDownLatch(1);
    List<Boolean> kept = new CopyOnWriteArrayList<>();
    try (TaskScope<Integer> scope = runtime.scope()) {
      occupy(scope, engine, hold);
      Thread closer =
          Thread.ofPlatform()
              .start(
                  () -> {
                    engine.close();
                    kept.add(Thread.currentThread().isInterrupted());
                  });
      Eventually.waits(closer);
      closer.interrupt();
      hold.countDown();
      scope.join();
      Eventually.holds("closed", () -> !closer.isAlive());
    }
    assertThat(kept).containsExactly(true);
  }

  @Test
  void manyCloseAtOnceAndEachInstanceIsDestroyedOnce() {
    Factory factory = new Factory();
    Engine<Integer> engine =
        runtime.engine("lib", ThreadRule.ONE_AT_A_TIME, factory, EngineLimits.of(2));
    CountDownLatch hold = new CountDownLatch(1);
    try (TaskScope<Integer> scope = runtime.scope()) {
      occupy(scope, engine, hold);
      occupy(scope, engine, hold);
      List<Thread> closers = new ArrayList<>();
      for (int i = 0; i < 8; i++) {
        closers.add(Thread.ofVirtual().start(engine::close));
      }
      closers.forEach(Eventually::waits);
      hold.countDown();
      scope.join();
      closers.forEach(closer -> Eventually.holds("closed", () -> !closer.isAlive()));
    }
    assertThat(factory.destroyed).containsExactlyInAnyOrder(1, 2);
  }

  @ParameterizedTest
  @EnumSource(
      value = ThreadRule.class,
      names = {"OWNER_ONLY", "ONE_AT_A_TIME", "ANY_THREAD"})
  void aCloseWhileTheFactoryRunsLetsThatCallEnd(ThreadRule rule) {
    Factory factory = new Factory();
    CountDownLatch making = new CountDownLatch(1);
    CountDownLatch hold = new CountDownLatch(1);
    factory.onCreate =
        () -> {
          making.countDown();
          TaskScopeTest.awaitQuietly(hold);
        };
    Engine<Integer> engine = runtime.engine("lib", rule, factory, EngineLimits.of(1));
    try (TaskScope<Integer> scope = runtime.scope()) {
      scope.fork(
          ForkOptions.named("maker").eager(true), () -> engine.<Integer>call(0, i -> i + 10));
      TaskScopeTest.awaitQuietly(making);
      assertThatExceptionOfType(EngineException.class)
          .isThrownBy(() -> engine.close(SHORT))
          .withMessageContaining("task 'maker' makes an instance");
      hold.countDown();
      assertThat(scope.join()).containsExactly(11);
    }
    engine.close();
    assertThat(factory.destroyed).containsExactly(1);
  }

  @ParameterizedTest
  @EnumSource(
      value = ThreadRule.class,
      names = {"OWNER_ONLY", "ONE_AT_A_TIME", "ANY_THREAD"})
  void aFactoryThatClosesItsEngineIsTold(ThreadRule rule) {
    Factory factory = new Factory();
    AtomicReference<Throwable> seen = new AtomicReference<>();
    Engine<Integer> engine = runtime.engine("lib", rule, factory, EngineLimits.of(1));
    Runnable closes =
        () -> {
          try {
            engine.close();
          } catch (IllegalStateException e) {
            seen.set(e);
          }
        };
    factory.onCreate = closes;
    assertThat(engine.<Integer>call(0, i -> i)).isEqualTo(1);
    assertThat(seen.getAndSet(null)).hasMessageContaining("close it outside");
    factory.onDestroy = closes;
    engine.close();
    assertThat(seen.get()).hasMessageContaining("close it outside");
  }

  @ParameterizedTest
  @EnumSource(
      value = ThreadRule.class,
      names = {"OWNER_ONLY", "ONE_AT_A_TIME", "ANY_THREAD"})
  void aDestroyThatThrowsAnErrorStopsNobody(ThreadRule rule) {
    Factory factory = new Factory();
    factory.onDestroy =
        () -> {
          throw new UnsatisfiedLinkError("on purpose");
        };
    Engine<Integer> engine = runtime.engine("lib", rule, factory, EngineLimits.of(1));
    engine.<Integer>call(0, i -> i);
    engine.close();
    engine.close(); // and this one does not wait for ever
    assertThat(factory.destroyed).containsExactly(1);
  }

  @Test
  void aGateOrAMemoryThatThrowsAnErrorKeepsNoInstance() {
    Factory factory = new Factory();
    AtomicInteger asked = new AtomicInteger();
    Engine<Integer> engine =
        runtime.engine(
            "lib",
            ThreadRule.ONE_AT_A_TIME,
            factory,
            EngineLimits.of(1)
                .admission(
                    bytes ->
                        Completion.completed(
                            () -> {
                              throw new AssertionError("giving back, on purpose");
                            }))
                .releaseGate(
                    task -> {
                      if (asked.getAndIncrement() == 0) {
                        throw new AssertionError("a gate, on purpose");
                      }
                      return Completion.completed(1);
                    }));
    assertThat(engine.<Integer>call(1, i -> i)).isEqualTo(1);
    assertThat(engine.<Integer>call(1, i -> i))
        .as("nobody knows the first one's state")
        .isEqualTo(2);
    assertThat(engine.stats().busy()).isZero();
  }

  @Test
  void anAdmissionThatGivesNothingIsNamed() {
    Engine<Integer> engine =
        runtime.engine(
            "lib", ThreadRule.ANY_THREAD, () -> 1, EngineLimits.of(1).admission(bytes -> null));
    assertThatNullPointerException()
        .isThrownBy(() -> engine.call(1, i -> i))
        .withMessageContaining("admission of engine 'lib'");
  }

  @Test
  void aCallThatWaitsForMemoryIsFailedByTheClose() {
    AtomicReference<Completion.Source<AutoCloseable>> request = new AtomicReference<>();
    Engine<Integer> engine =
        runtime.engine(
            "lib",
            ThreadRule.ONE_AT_A_TIME,
            () -> 1,
            EngineLimits.of(1)
                .queue(1)
                .admission(
                    bytes -> {
                      request.set(Completion.source());
                      return request.get().completion();
                    }));
    try (TaskScope<Integer> scope = runtime.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
      Fork<Integer> call =
          scope.fork(ForkOptions.DEFAULT.eager(true), () -> engine.call(10, i -> i));
      // the queue is full once it waits
      Eventually.holds("it waits", () -> request.get() != null && refuses(engine));
      engine.close();
      scope.join();
      assertThat(call.failure())
          .isInstanceOf(EngineException.class)
          .hasMessageContaining("closed before the call's turn came");
    }
  }

  private static boolean refuses(Engine<Integer> engine) {
    try {
      return engine.<Integer>call(10, i -> i) < 0;
    } catch (EngineException e) {
      return e.getMessage().contains("queue of 1");
    }
  }

  @Test
  void aRuntimeThatIsClosedInsideACallStaysOpen() {
    Engine<Integer> engine =
        runtime.engine("lib", ThreadRule.ONE_AT_A_TIME, () -> 1, EngineLimits.of(1));
    assertThatIllegalStateException()
        .isThrownBy(
            () ->
                engine.<@org.jspecify.annotations.Nullable Void>call(
                    0,
                    i -> {
                      runtime.close();
                      return null;
                    }))
        .withMessageContaining("close it outside");
    assertThat(engine.<Integer>call(0, i -> i)).isEqualTo(1);
  }
}
