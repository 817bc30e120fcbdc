package io.fairlead.task;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatExceptionOfType;
import static org.assertj.core.api.Assertions.assertThatIllegalArgumentException;
import static org.assertj.core.api.Assertions.assertThatIllegalStateException;

import io.fairlead.fault.DeadlineExceededException;
import io.fairlead.fault.EngineException;
import io.fairlead.fault.Mutant;
import io.fairlead.fault.TaskCancelledException;
import io.fairlead.fault.TaskFailedException;
import io.fairlead.fault.TaskInterruptedException;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

@Timeout(60)
class CompletionTest {
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

  // --- outcomes

  @Test
  void givesItsValueToEverybody() {
    Completion.Source<String> source = Completion.source();
    assertThat(source.completion().state()).isEqualTo(Completion.State.PENDING);
    assertThat(source.completion().isDone()).isFalse();
    assertThat(source.complete("v")).isTrue();
    assertThat(source.completion().await()).isEqualTo("v");
    assertThat(source.completion().getNow()).isEqualTo("v");
    assertThat(source.completion().await(Duration.ZERO)).isEqualTo("v");
    assertThat(source.completion().state()).isEqualTo(Completion.State.DONE);
    assertThat(source.completion().cause()).isNull();
  }

  @Test
  void nullIsAValue() {
    Completion.Source<Void> source = Completion.source();
    source.complete(null);
    assertThat(source.completion().isDone()).isTrue();
    assertThat(source.completion().await()).isNull();
    assertThat(Completion.completed(null).getNow()).isNull();
  }

  @Test
  void theFirstOutcomeStands() {
    Completion.Source<Integer> source = Completion.source();
    assertThat(source.complete(1)).isTrue();
    assertThat(source.complete(2)).isFalse();
    assertThat(source.fail(new IOException())).isFalse();
    assertThat(source.completion().cancel()).isFalse();
    assertThat(source.completion().await()).isEqualTo(1);
  }

  @Test
  void throwsItsOwnKindOfCauseAsItIs() {
    EngineException cause = new EngineException("e", "broke", null);
    Completion<Integer> failed = Completion.failed(cause);
    for (int i = 0; i < 3; i++) {
      assertThatExceptionOfType(EngineException.class)
          .isThrownBy(failed::await)
          .satisfies(e -> assertThat(e).isSameAs(cause));
    }
    assertThat(cause.getSuppressed()).as("shared by all waiters, so unchanged").isEmpty();
    assertThat(failed.state()).isEqualTo(Completion.State.FAILED);
    assertThat(failed.cause()).isSameAs(cause);
  }

  @Test
  void wrapsForeignCauses() {
    IOException cause = new IOException("disk");
    assertThatExceptionOfType(TaskFailedException.class)
        .isThrownBy(Completion.failed(cause)::getNow)
        .withCause(cause);
  }

  @Test
  void getNowSaysThatItIsPending() {
    assertThatIllegalStateException()
        .isThrownBy(Completion.<Integer>source().completion()::getNow)
        .withMessageContaining("isDone()");
  }

  @Test
  void cancelRunsTheSourcesActionOnce() {
    AtomicInteger ran = new AtomicInteger();
    Completion.Source<Integer> source = Completion.source();
    source.onCancel(ran::incrementAndGet);
    assertThat(source.completion().cancel()).isTrue();
    assertThat(source.completion().cancel()).isFalse();
    assertThat(ran).hasValue(1);
    assertThat(source.completion().state()).isEqualTo(Completion.State.CANCELLED);
    assertThat(source.complete(1)).isFalse();
    assertThatExceptionOfType(TaskCancelledException.class).isThrownBy(source.completion()::await);
    source.onCancel(ran::incrementAndGet); // late: at once
    assertThat(ran).hasValue(2);
  }

  @Test
  void whatASourceIsMadeWithHearsOfACancellationFirstAndOfNothingElse() {
    List<String> heard = new ArrayList<>();
    Completion.Source<Integer> source = Completion.source(null, () -> heard.add("action"));
    source.completion().onDone(done -> heard.add("callback"));
    Completion<Integer> derived = source.completion().thenApply(value -> value + 1);
    assertThat(derived.cancel()).isTrue(); // not the source's business
    assertThat(heard).isEmpty();
    assertThat(source.completion().cancel()).isTrue();
    assertThat(source.completion().cancel()).isFalse();
    assertThat(heard).containsExactly("action", "callback");
    Completion.Source<Integer> done = Completion.source(null, () -> heard.add("of a value"));
    assertThat(done.complete(1)).isTrue();
    assertThat(done.completion().cancel()).isFalse();
    Completion.Source<Integer> failed = Completion.source(null, () -> heard.add("of a failure"));
    assertThat(failed.fail(new IOException("disk"))).isTrue();
    assertThat(heard).hasSize(2);
  }

  @Test
  void aThrowingActionOfACancellationKeepsNobodyWaiting() {
    Completion.Source<Integer> source =
        Completion.source(
            null,
            () -> {
              throw new IllegalArgumentException("a bad action, on purpose");
            });
    AtomicInteger heard = new AtomicInteger();
    source.completion().onDone(done -> heard.incrementAndGet());
    assertThat(source.completion().cancel()).isTrue();
    assertThat(heard).hasValue(1);
  }

  @Test
  void cancelActionDoesNotRunOtherwise() {
    AtomicInteger ran = new AtomicInteger();
    Completion.Source<Integer> source = Completion.source();
    source.onCancel(ran::incrementAndGet);
    source.complete(1);
    source.onCancel(ran::incrementAndGet);
    assertThat(ran).hasValue(0);
  }

  // --- callbacks and combinations

  @Test
  void callsBackInOrderAlsoWhenOneThrows() {
    List<Integer> seen = new ArrayList<>();
    Completion.Source<Integer> source = Completion.source();
    source.completion().onDone(c -> seen.add(c.getNow()));
    source
        .completion()
        .onDone(
            c -> {
              throw new IllegalArgumentException("a bad callback, on purpose");
            });
    source.completion().onDone(c -> seen.add(c.getNow() + 1));
    source.complete(5);
    source.completion().onDone(c -> seen.add(c.getNow() + 2));
    assertThat(seen).containsExactly(5, 6, 7);
  }

  @Test
  void appliesAndPassesFailuresOn() {
    Completion.Source<Integer> source = Completion.source();
    Completion<Integer> doubled = source.completion().thenApply(i -> i * 2);
    Completion<Integer> broken =
        doubled.thenApply(
            i -> {
              throw new IllegalArgumentException("on " + i);
            });
    Completion<Integer> after = broken.thenApply(i -> i + 1);
    source.complete(4);
    assertThat(doubled.await()).isEqualTo(8);
    assertThat(after.cause()).isInstanceOf(IllegalArgumentException.class).hasMessage("on 8");
    assertThat(Completion.completed(1).thenApply(i -> "v" + i).getNow()).isEqualTo("v1");
  }

  @Test
  void aLongChainNeedsNoStack() {
    Completion.Source<Integer> source = Completion.source();
    Completion<Integer> last = source.completion();
    for (int i = 0; i < 100_000; i++) {
      last = last.thenApply(n -> n + 1);
    }
    source.complete(0);
    assertThat(last.await()).isEqualTo(100_000);
  }

  @Test
  void allKeepsOrder() {
    List<Completion.Source<Integer>> sources = sources(3);
    Completion<List<Integer>> all = Completion.all(completions(sources));
    sources.get(2).complete(2);
    sources.get(0).complete(0);
    assertThat(all.isDone()).isFalse();
    sources.get(1).complete(1);
    assertThat(all.await()).containsExactly(0, 1, 2);
    assertThat(Completion.all(List.<Completion<Integer>>of()).await()).isEmpty();
  }

  @Test
  void allFailsWithTheFirstFailureOnceNothingGoesOnAnyMore() {
    List<Completion.Source<Integer>> sources = sources(3);
    Completion<List<Integer>> all = Completion.all(completions(sources));
    IOException first = new IOException("first");
    sources.get(1).fail(first);
    sources.get(0).fail(new IOException("second"));
    assertThat(all.isDone()).as("one still goes on").isFalse();
    sources.get(2).complete(2);
    assertThat(all.cause()).isSameAs(first);
  }

  @Test
  void anyTakesTheFirstOutcome() {
    List<Completion.Source<Integer>> sources = sources(3);
    Completion<Integer> any = Completion.any(completions(sources));
    sources.get(1).complete(1);
    assertThat(any.await()).isEqualTo(1);
    assertThatIllegalArgumentException().isThrownBy(() -> Completion.any(List.of()));
  }

  @Test
  void anyLeavesNothingOnTheLosers() {
    Completion.Source<Integer> never = Completion.source();
    for (int i = 0; i < 10_000; i++) {
      Completion.any(List.of(never.completion(), Completion.completed(1))).await();
    }
    assertThat(never.completion().linked()).isLessThanOrEqualTo(2 * Completion.SWEEP_MIN);
  }

  @Test
  void aCancelledCombinationUnhooksItself() {
    Completion.Source<Integer> never = Completion.source();
    for (int i = 0; i < 10_000; i++) {
      Completion.all(List.of(never.completion())).cancel();
      never.completion().thenApply(x -> x).cancel();
    }
    assertThat(never.completion().linked()).isLessThanOrEqualTo(2 * Completion.SWEEP_MIN);
  }

  // --- bridges

  @Test
  void becomesAStage() throws Exception {
    Completion.Source<Integer> source = Completion.source();
    CompletableFuture<Integer> future =
        source.completion().toStage().thenApply(i -> i + 1).toCompletableFuture();
    source.complete(1);
    assertThat(future.get(30, TimeUnit.SECONDS)).isEqualTo(2);

    IOException cause = new IOException();
    CompletableFuture<?> failed = Completion.failed(cause).toStage().toCompletableFuture();
    assertThatExceptionOfType(ExecutionException.class).isThrownBy(failed::get).withCause(cause);

    Completion.Source<Integer> given = Completion.source();
    CompletableFuture<Integer> cancelled = given.completion().toStage().toCompletableFuture();
    given.completion().cancel();
    assertThatExceptionOfType(ExecutionException.class)
        .isThrownBy(cancelled::get)
        .withCauseInstanceOf(CancellationException.class);
  }

  @Test
  void nobodyCompletesTheStageOfAnother() {
    Completion.Source<Integer> source = Completion.source();
    source.completion().toStage().toCompletableFuture().complete(7);
    assertThat(source.completion().isDone()).isFalse();
  }

  @Test
  void comesFromAStage() {
    CompletableFuture<Integer> future = new CompletableFuture<>();
    Completion<Integer> completion = Completion.of(future);
    assertThat(completion.isDone()).isFalse();
    future.complete(3);
    assertThat(completion.await()).isEqualTo(3);

    IOException cause = new IOException();
    Completion<Integer> failed =
        Completion.of(
            CompletableFuture.<Integer>failedFuture(new CompletionException(cause))
                .thenApply(i -> i));
    assertThat(failed.cause()).isSameAs(cause);

    CompletableFuture<Integer> given = new CompletableFuture<>();
    given.cancel(false);
    assertThat(Completion.of(given).state()).isEqualTo(Completion.State.CANCELLED);
  }

  // --- waiting: each mode, each reason to stop

  @ParameterizedTest
  @EnumSource(WaitMode.class)
  void waitsInEachMode(WaitMode mode) throws Exception {
    Completion.Source<Integer> source = Completion.source();
    AtomicInteger got = new AtomicInteger();
    Thread waiter = Thread.ofVirtual().start(() -> got.set(source.completion().await(mode)));
    source.complete(9);
    waiter.join();
    assertThat(got).hasValue(9);
  }

  @ParameterizedTest
  @EnumSource(WaitMode.class)
  void aDeadlineEndsEachWait(WaitMode mode) {
    Completion.Source<Integer> source = Completion.source();
    assertThatExceptionOfType(DeadlineExceededException.class)
        .isThrownBy(() -> source.completion().await(mode, Duration.ofMillis(3)))
        .satisfies(e -> assertThat(e.deadline()).isEqualTo(Duration.ofMillis(3)));
    assertThat(source.completion().isDone()).as("the operation goes on").isFalse();
    assertThat(source.completion().linked()).isLessThanOrEqualTo(1);
  }

  @ParameterizedTest
  @EnumSource(WaitMode.class)
  void anInterruptEndsEachWaitAndStaysSet(WaitMode mode) throws Exception {
    Completion.Source<Integer> source = Completion.source();
    AtomicReference<Object> seen = new AtomicReference<>();
    CountDownLatch started = new CountDownLatch(1);
    Thread waiter =
        Thread.ofPlatform()
            .start(
                () -> {
                  started.countDown();
                  try {
                    source.completion().await(mode);
                  } catch (TaskInterruptedException e) {
                    seen.set(Thread.currentThread().isInterrupted());
                  }
                });
    started.await();
    waiter.interrupt();
    waiter.join();
    assertThat(seen.get()).as("interrupted, with the status still set").isEqualTo(true);
  }

  @ParameterizedTest
  @EnumSource(WaitMode.class)
  void cancellingTheTaskEndsEachWait(WaitMode mode) {
    Completion.Source<Integer> source = Completion.source();
    IOException why = new IOException("why");
    try (TaskScope<Integer> scope = runtime.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
      CountDownLatch started = new CountDownLatch(1);
      Fork<Integer> fork =
          scope.fork(
              () -> {
                started.countDown();
                return source.completion().await(mode);
              });
      assertThat(awaitLatch(started)).isTrue();
      fork.task().cancel(why);
      assertThat(scope.join()).isEmpty();
      assertThat(fork.state()).isEqualTo(Fork.State.CANCELLED);
      assertThat(fork.failure()).isInstanceOf(TaskCancelledException.class).hasCause(why);
    }
  }

  @Test
  void anOutcomeThatIsThereBeatsACancelledTask() {
    int value =
        runtime.<Integer>enter(
            "t",
            0,
            () -> {
              Task.current().cancel(null);
              return Completion.completed(4).await();
            });
    assertThat(value).isEqualTo(4);
  }

  @Test
  void cleanupWaitsThroughCancellation() {
    Completion.Source<Integer> source = Completion.source();
    Thread completer = new Thread(() -> source.complete(6));
    int value =
        runtime.<Integer>enter(
            "t",
            0,
            () -> {
              Task.current().cancel(null);
              completer.start();
              int got = source.completion().awaitUninterruptibly();
              assertThat(Thread.currentThread().isInterrupted()).as("set again").isTrue();
              return got;
            });
    assertThat(value).isEqualTo(6);
  }

  @Test
  void waitsAsItsTaskSays() {
    CountingHelp help = new CountingHelp();
    Completion.Source<Integer> source = Completion.source(help);
    help.source = source;
    try (TaskScope<Integer> scope = runtime.scope(ScopeOptions.DEFAULT.waitMode(WaitMode.SPIN))) {
      scope.fork(() -> source.completion().await());
      assertThat(scope.join()).containsExactly(1);
    }
    assertThat(help.polls.get()).isPositive();
    assertThat(help.blocks).hasValue(0);
  }

  @Test
  void blockingBlocksThroughItsHelpAndParksWhereThatCannot() {
    CountingHelp help = new CountingHelp();
    Completion.Source<Integer> source = Completion.source(help);
    help.source = source;
    assertThat(source.completion().await(WaitMode.BLOCKING)).isEqualTo(1);
    assertThat(help.blocks.get()).isPositive();

    help = new CountingHelp();
    help.canBlock = false;
    Completion.Source<Integer> other = Completion.source(help);
    Thread main = Thread.currentThread();
    Thread.ofVirtual()
        .start(
            () -> {
              Eventually.waits(main);
              other.complete(8);
            });
    assertThat(other.completion().await(WaitMode.BLOCKING)).isEqualTo(8);
    assertThat(help.blocks).hasValue(1);
  }

  @Test
  void helpReachesThroughCombinations() {
    for (int shape = 0; shape < 3; shape++) {
      CountingHelp help = new CountingHelp();
      Completion.Source<Integer> source = Completion.source(help);
      help.source = source;
      Completion<?> combined =
          switch (shape) {
            case 0 -> source.completion().thenApply(i -> i);
            case 1 -> Completion.all(List.of(source.completion(), Completion.completed(2)));
            default -> Completion.any(List.of(source.completion()));
          };
      combined.await(WaitMode.SPIN);
      assertThat(help.polls.get()).isPositive();
    }
  }

  /** Done at the third look, or when blocked on. */
  private static final class CountingHelp implements WaitHelp {
    final AtomicInteger polls = new AtomicInteger();
    final AtomicInteger blocks = new AtomicInteger();
    boolean canBlock = true;
    Completion.Source<Integer> source;

    @Override
    public boolean poll() {
      return polls.incrementAndGet() >= 3 && source.complete(1);
    }

    @Override
    public boolean block(long nanos) {
      blocks.incrementAndGet();
      return canBlock && source.complete(1);
    }
  }

  // --- garbage

  @Test
  void manyTimedOutWaitsLeaveNothing() {
    assertThat(linkedAfterTimedOutWaits(100_000)).isLessThanOrEqualTo(2 * Completion.SWEEP_MIN);
  }

  @Test
  void theTestAboveFindsTheLeak() {
    try (Mutant.Handle _ = Mutant.enable("completion.no-sweep")) {
      assertThat(linkedAfterTimedOutWaits(1_000)).isGreaterThan(2 * Completion.SWEEP_MIN);
    }
  }

  private static int linkedAfterTimedOutWaits(int waits) {
    Completion.Source<Integer> never = Completion.source();
    Thread keeper = Thread.ofVirtual().start(() -> never.completion().awaitUninterruptibly());
    Eventually.holds("a living waiter is at the bottom", () -> never.completion().linked() == 1);
    int timedOut = 0;
    for (int i = 0; i < waits; i++) {
      try {
        never.completion().await(Duration.ofNanos(1));
      } catch (DeadlineExceededException e) {
        timedOut++;
      }
    }
    int linked = never.completion().linked();
    assertThat(timedOut).isEqualTo(waits);
    never.complete(1);
    Eventually.holds("the living waiter wakes", () -> !keeper.isAlive());
    return linked;
  }

  @Test
  void theLivingWakeAmongTheDead() throws Exception {
    Completion.Source<Integer> source = Completion.source();
    List<Thread> threads = new ArrayList<>();
    AtomicInteger woken = new AtomicInteger();
    AtomicInteger late = new AtomicInteger();
    for (int i = 0; i < 20_000; i++) {
      boolean patient = i % 10 == 0;
      threads.add(
          Thread.ofVirtual()
              .start(
                  () -> {
                    try {
                      if (patient) {
                        source.completion().await();
                      } else {
                        source.completion().await(Duration.ofMillis(1));
                      }
                      woken.incrementAndGet();
                    } catch (DeadlineExceededException e) {
                      late.incrementAndGet();
                    }
                  }));
    }
    Eventually.holds("the impatient are gone", () -> late.get() == 18_000);
    assertThat(source.completion().linked())
        .as("the living, and at most as many dead")
        .isBetween(0, 2 * (2_000 + Completion.SWEEP_MIN));
    source.complete(1);
    for (Thread thread : threads) {
      thread.join();
    }
    assertThat(woken).hasValue(2_000);
  }

  // --- where waiting is refused

  @Test
  void aCallbackOnThePollerMustNotWait() {
    Completion.Source<Integer> trigger = Completion.source();
    AtomicReference<Throwable> thrown = new AtomicReference<>();
    trigger
        .completion()
        .onDone(
            done -> {
              try {
                Completion.<Integer>source().completion().await();
              } catch (IllegalStateException e) {
                thrown.set(e);
              }
            });
    runtime.register(() -> trigger.complete(1) ? 1 : 0);
    Eventually.holds("the callback has run", () -> thrown.get() != null);
    assertThat(thrown.get()).hasMessageContaining("register onDone instead");
  }

  private static List<Completion.Source<Integer>> sources(int count) {
    List<Completion.Source<Integer>> sources = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      sources.add(Completion.source());
    }
    return sources;
  }

  private static List<Completion<Integer>> completions(List<Completion.Source<Integer>> sources) {
    return sources.stream().map(Completion.Source::completion).toList();
  }

  private static boolean awaitLatch(CountDownLatch latch) {
    try {
      return latch.await(30, TimeUnit.SECONDS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      return false;
    }
  }
}
