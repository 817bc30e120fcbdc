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
import java.nio.channels.spi.AbstractInterruptibleChannel;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class TaskScopeTest {
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

  @SuppressWarnings("TypeParameterUnusedInFormals") // fits every body; it never returns
  private static <T> T forever() {
    return Completion.<T>source().completion().await();
  }

  // --- policies

  @Test
  void allSucceedGivesResultsInForkOrder() {
    try (TaskScope<Integer> scope = runtime.scope()) {
      for (int i = 0; i < 1_000; i++) {
        int value = i;
        scope.fork(() -> value);
      }
      assertThat(scope.join()).isEqualTo(IntStream.range(0, 1_000).boxed().toList());
      assertThat(scope.forks()).hasSize(1_000).allMatch(f -> f.state() == Fork.State.SUCCEEDED);
    }
  }

  @Test
  void nothingForkedJoinsToNothing() {
    try (TaskScope<Integer> scope = runtime.scope()) {
      assertThat(scope.join()).isEmpty();
    }
  }

  @Test
  void theFirstFailureCancelsTheRestAndIsThrownAsItIs() {
    EngineException failure = new EngineException("e", "broke", null);
    try (TaskScope<Integer> scope = runtime.scope(ScopeOptions.DEFAULT.name("work"))) {
      Fork<Integer> waiting = scope.fork(TaskScopeTest::forever);
      Fork<Integer> failing =
          scope.fork(
              ForkOptions.named("bad"),
              () -> {
                throw failure;
              });
      assertThatExceptionOfType(EngineException.class)
          .isThrownBy(scope::join)
          .satisfies(e -> assertThat(e).isSameAs(failure));
      assertThat(waiting.state()).isEqualTo(Fork.State.CANCELLED);
      assertThat(waiting.failure()).hasCause(failure);
      assertThat(failing.state()).isEqualTo(Fork.State.FAILED);
    }
    assertThat(failure.getSuppressed())
        .singleElement()
        .satisfies(
            note -> {
              assertThat(note).hasMessageContaining("'bad', fork 1 of scope 'work'");
              assertThat(note.getStackTrace())
                  .as("where it was joined")
                  .anyMatch(f -> f.getClassName().equals(TaskScopeTest.class.getName()));
            });
  }

  @Test
  void aChildThatWasCancelledByItselfIsMissingFromAllSucceed() {
    try (TaskScope<Integer> scope = runtime.scope()) {
      scope.fork(() -> 1);
      Fork<Integer> given = scope.fork(TaskScopeTest::forever);
      given.task().cancel(new IOException("not this one"));
      assertThatExceptionOfType(TaskCancelledException.class)
          .isThrownBy(scope::join)
          .withMessageContaining("not this one");
    }
  }

  @Test
  void checkedFailuresAreWrappedAndErrorsAreNot() {
    IOException checked = new IOException("disk");
    try (TaskScope<Integer> scope = runtime.scope()) {
      scope.fork(
          () -> {
            throw checked;
          });
      assertThatExceptionOfType(TaskFailedException.class)
          .isThrownBy(scope::join)
          .withCause(checked);
    }
    try (TaskScope<Integer> scope = runtime.scope()) {
      scope.fork(
          () -> {
            throw new StackOverflowError("on purpose");
          });
      assertThatExceptionOfType(StackOverflowError.class).isThrownBy(scope::join);
    }
  }

  @Test
  void notesOnASharedFailureDoNotGrow() {
    EngineException failure = new EngineException("e", "broke", null);
    for (int i = 0; i < 50; i++) {
      try (TaskScope<Integer> scope = runtime.scope()) {
        scope.fork(
            () -> {
              throw failure;
            });
        assertThatExceptionOfType(EngineException.class).isThrownBy(scope::join);
      }
    }
    assertThat(failure.getSuppressed()).hasSize(Problems.NOTES_MAX);
  }

  @Test
  void firstSuccessCancelsTheRest() {
    try (TaskScope<String> scope = runtime.scope(ScopeOptions.of(ScopePolicy.FIRST_SUCCESS))) {
      scope.fork(
          () -> {
            throw new IOException("no luck");
          });
      Fork<String> loser = scope.fork(TaskScopeTest::forever);
      scope.fork(() -> "won");
      assertThat(scope.join()).containsExactly("won");
      assertThat(loser.state()).isEqualTo(Fork.State.CANCELLED);
    }
  }

  @Test
  void firstSuccessWithoutOneThrowsTheFirstFailure() {
    try (TaskScope<String> scope = runtime.scope(ScopeOptions.of(ScopePolicy.FIRST_SUCCESS))) {
      scope.fork(
          () -> {
            throw new IllegalArgumentException("a");
          });
      assertThatIllegalArgumentException().isThrownBy(scope::join).withMessage("a");
    }
    try (TaskScope<String> scope = runtime.scope(ScopeOptions.of(ScopePolicy.FIRST_SUCCESS))) {
      assertThatIllegalStateException()
          .isThrownBy(scope::join)
          .withMessageContaining("nothing was forked");
    }
  }

  @Test
  void collectGivesSuccessesAndForksTheRest() {
    try (TaskScope<Integer> scope = runtime.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
      scope.fork(() -> 1);
      Fork<Integer> failed =
          scope.fork(
              () -> {
                throw new IOException("x");
              });
      scope.fork(() -> 3);
      assertThat(scope.join()).containsExactly(1, 3);
      assertThat(failed.failure()).isInstanceOf(IOException.class);
      assertThatExceptionOfType(TaskFailedException.class).isThrownBy(failed::get);
    }
  }

  @Test
  void nullResultsAreResults() {
    try (TaskScope<Void> scope = runtime.scope()) {
      scope.fork(() -> null);
      assertThat(scope.join()).hasSize(1).containsOnlyNulls();
    }
  }

  // --- cancellation reaches children

  @Test
  void reachesAChildThatIsParkedOnACompletion() {
    cancelReaches(TaskScopeTest::forever, Fork.State.CANCELLED);
  }

  @Test
  void reachesAChildThatIsInAJdkWait() {
    cancelReaches(
        () -> {
          new CountDownLatch(1).await();
          return 0;
        },
        Fork.State.CANCELLED);
  }

  @Test
  void reachesAChildThatRuns() {
    cancelReaches(
        () -> {
          while (true) {
            Task.current().checkCancelled();
            Thread.onSpinWait();
          }
        },
        Fork.State.CANCELLED);
  }

  @Test
  void reachesAGrandchild() {
    cancelReaches(
        () -> {
          try (TaskScope<Integer> inner = runtime.scope()) {
            inner.fork(TaskScopeTest::forever);
            return inner.join().getFirst();
          }
        },
        Fork.State.CANCELLED);
  }

  @Test
  void reachesAGrandchildWhoseParentIsBusy() {
    CountDownLatch grandchildBegan = new CountDownLatch(1);
    AtomicBoolean grandchildEnded = new AtomicBoolean();
    cancelReaches(
        () -> {
          try (TaskScope<Integer> inner = runtime.scope()) {
            inner.fork(
                () -> {
                  grandchildBegan.countDown();
                  try {
                    return forever();
                  } finally {
                    grandchildEnded.set(true);
                  }
                });
            // looks at no cancellation itself: only the canceller can reach the grandchild
            Eventually.holds("the grandchild was reached", grandchildEnded::get);
            return 1;
          }
        },
        grandchildBegan, // one that has not begun never does, so it would not end either
        Fork.State.SUCCEEDED);
  }

  @Test
  void reachesAChildInAnInlineTask() {
    cancelReaches(
        () -> runtime.<Integer>enter("inner", 0, TaskScopeTest::forever), Fork.State.CANCELLED);
  }

  @Test
  void reachesAChildInAnOwnerCall() {
    Owner owner = runtime.owner("o", Role.OWNER);
    Gate gate = Gate.of("e", ThreadRule.OWNER_ONLY, owner, java.util.Set.of(), null);
    cancelReaches(() -> gate.call("wait", TaskScopeTest::forever), Fork.State.CANCELLED);
  }

  @Test
  void reachesAChildWhoseOwnerCallHasNotBegun() {
    Owner owner = runtime.owner("o", Role.OWNER);
    CountDownLatch hold = new CountDownLatch(1);
    owner.trySubmit(() -> awaitQuietly(hold));
    AtomicBoolean ran = new AtomicBoolean();
    Gate gate = Gate.of("e", ThreadRule.OWNER_ONLY, owner, java.util.Set.of(), null);
    cancelReaches(
        () ->
            gate.call(
                "never",
                () -> {
                  ran.set(true);
                  return 1;
                }),
        Fork.State.CANCELLED);
    hold.countDown();
    owner.close();
    assertThat(ran).isFalse();
  }

  @Test
  void reachesABoundChildInTheQueue() {
    Owner owner = runtime.owner("o", Role.OWNER);
    CountDownLatch hold = new CountDownLatch(1);
    owner.trySubmit(() -> awaitQuietly(hold));
    AtomicBoolean ran = new AtomicBoolean();
    try (TaskScope<Integer> scope = runtime.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
      Fork<Integer> fork =
          scope.fork(
              ForkOptions.DEFAULT.placement(new Placement.Bound(owner)),
              () -> {
                ran.set(true);
                return 1;
              });
      scope.cancel(null);
      hold.countDown();
      assertThat(scope.join()).isEmpty();
      assertThat(fork.state()).isEqualTo(Fork.State.CANCELLED);
    }
    assertThat(ran).isFalse();
  }

  /** Interrupting whoever waits in it takes until it is let go. */
  private static final class SlowToInterrupt extends AbstractInterruptibleChannel {
    final CountDownLatch waits = new CountDownLatch(1);
    final CountDownLatch interrupted = new CountDownLatch(1);
    final CountDownLatch letGo = new CountDownLatch(1);

    @Override
    protected void implCloseChannel() {
      interrupted.countDown();
      awaitQuietly(letGo);
    }

    int await() throws IOException {
      begin();
      try {
        waits.countDown();
        awaitQuietly(letGo);
        return 1;
      } finally {
        end(true);
      }
    }
  }

  /**
   * A child in place shares its parent's thread. One that cancels the scope has not come to it yet
   * when another that cancels the parent interrupts this thread.
   */
  @Test
  void aChildInPlaceIsCancelledWhoeverInterruptsItFirst() {
    SlowToInterrupt newer = new SlowToInterrupt();
    CountDownLatch inPlace = new CountDownLatch(1);
    try (TaskRuntime own = TaskRuntime.open(TaskConfig.DEFAULT, Stealing.NEVER)) {
      own.<Integer>enter(
          "parent",
          0,
          () -> {
            Task parent = Task.current();
            try (TaskScope<Integer> scope = own.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
              Fork<Integer> child =
                  scope.fork(
                      () -> {
                        inPlace.countDown();
                        try {
                          return forever();
                        } finally {
                          while (!parent.isCancelled()) { // whichever of the two it has met
                            Thread.onSpinWait();
                          }
                          newer.letGo.countDown();
                        }
                      });
              scope.fork(ForkOptions.DEFAULT.eager(true), newer::await);
              Thread.ofPlatform()
                  .start(
                      () -> {
                        awaitQuietly(inPlace);
                        awaitQuietly(newer.waits);
                        scope.cancel(null); // the newer child first
                      });
              Thread.ofPlatform()
                  .start(
                      () -> {
                        awaitQuietly(newer.interrupted);
                        parent.cancel(null);
                      });
              assertThatExceptionOfType(TaskCancelledException.class).isThrownBy(scope::join);
              assertThat(child.failure()).isInstanceOf(TaskCancelledException.class);
              assertThat(child.state()).isEqualTo(Fork.State.CANCELLED);
            }
            return 1;
          });
    }
  }

  private void cancelReaches(TaskBody<Integer> body, Fork.State expected) {
    cancelReaches(body, new CountDownLatch(0), expected);
  }

  private void cancelReaches(TaskBody<Integer> body, CountDownLatch ready, Fork.State expected) {
    IOException why = new IOException("why");
    try (TaskScope<Integer> scope = runtime.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
      CountDownLatch started = new CountDownLatch(1);
      AtomicReference<Thread> thread = new AtomicReference<>();
      Fork<Integer> fork =
          scope.fork(
              () -> {
                thread.set(Thread.currentThread());
                started.countDown();
                return body.run();
              });
      awaitQuietly(started);
      awaitQuietly(ready);
      Eventually.holdsWithin(
          Duration.ofMillis(50), () -> thread.get().getState() == Thread.State.WAITING);
      scope.cancel(why);
      scope.join();
      assertThat(fork.state()).isEqualTo(expected);
      assertThat(fork.task().isCancelled()).isTrue();
    }
  }

  @Test
  void childrenForkedAfterTheCancelDoNotBegin() {
    assertThat(beginsAfterCancel()).isFalse();
  }

  @Test
  void theTestAboveFindsAChildThatBegins() {
    try (Mutant.Handle _ = Mutant.enable("task.cancelled-still-begins")) {
      assertThat(beginsAfterCancel()).isTrue();
    }
  }

  private boolean beginsAfterCancel() {
    AtomicBoolean ran = new AtomicBoolean();
    try (TaskScope<Integer> scope = runtime.scope()) {
      scope.cancel(null);
      Fork<Integer> fork =
          scope.fork(
              () -> {
                ran.set(true);
                return forever();
              });
      assertThatExceptionOfType(TaskCancelledException.class).isThrownBy(scope::join);
      assertThat(fork.state()).isEqualTo(Fork.State.CANCELLED);
    }
    assertThat(Thread.currentThread().isInterrupted()).isFalse();
    return ran.get();
  }

  @Test
  void anInterruptedJoinCancelsAndCloseWaits() {
    AtomicInteger ended = new AtomicInteger();
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
      Thread.currentThread().interrupt();
      assertThatExceptionOfType(TaskInterruptedException.class).isThrownBy(scope::join);
      assertThat(Thread.currentThread().isInterrupted()).isTrue();
    }
    assertThat(Thread.interrupted()).as("close keeps the status").isTrue();
    assertThat(ended.get()).as("no child outlived the scope; not all had begun").isBetween(0, 10);
  }

  @Test
  void leavingWithLiveChildrenCancelsAndWaits() {
    AtomicBoolean ended = new AtomicBoolean();
    CountDownLatch started = new CountDownLatch(1);
    try (TaskScope<Integer> scope = runtime.scope()) {
      scope.fork(
          () -> {
            started.countDown();
            try {
              return forever();
            } finally {
              ended.set(true);
            }
          });
      awaitQuietly(started);
    }
    assertThat(ended).isTrue();
  }

  @Test
  void aDeadlineCancelsTheScope() {
    ScopeOptions options = ScopeOptions.DEFAULT.name("slow").deadline(Duration.ofMillis(5));
    try (TaskScope<Integer> scope = runtime.scope(options)) {
      Fork<Integer> fork = scope.fork(TaskScopeTest::forever);
      assertThatExceptionOfType(DeadlineExceededException.class)
          .isThrownBy(scope::join)
          .withMessageContaining("scope 'slow'");
      assertThat(fork.state()).isEqualTo(Fork.State.CANCELLED);
    }
  }

  @Test
  void aDeadlineReachesChildrenWhileTheOwnerDoesOtherThings() {
    ScopeOptions options = ScopeOptions.DEFAULT.deadline(Duration.ofMillis(5));
    try (TaskScope<Integer> scope = runtime.scope(options)) {
      Fork<Integer> fork =
          scope.fork(
              () -> {
                new CountDownLatch(1).await();
                return 1;
              });
      Eventually.holds("the child ends", () -> fork.state() != Fork.State.RUNNING);
      assertThat(fork.state()).isEqualTo(Fork.State.CANCELLED);
    }
  }

  @Test
  void aDeadlineThatIsMetDoesNothing() {
    ScopeOptions options = ScopeOptions.DEFAULT.deadline(Duration.ofDays(400_000));
    try (TaskScope<Integer> scope = runtime.scope(options)) {
      scope.fork(() -> 1);
      assertThat(scope.join()).containsExactly(1);
    }
    assertThatIllegalArgumentException()
        .isThrownBy(() -> ScopeOptions.DEFAULT.deadline(Duration.ZERO));
  }

  // --- placement

  @Test
  void aBoundChildRunsOnItsOwner() {
    Owner owner = runtime.owner("place", Role.OWNER);
    try (TaskScope<String> scope = runtime.scope()) {
      ForkOptions bound = ForkOptions.DEFAULT.placement(new Placement.Bound(owner));
      scope.fork(bound, () -> Thread.currentThread().getName() + Task.current().placement());
      scope.fork(
          bound,
          () -> {
            // a child of a bound task bound to the same owner runs inline
            try (TaskScope<String> inner = runtime.scope()) {
              inner.fork(bound, () -> "inner on " + Thread.currentThread().getName());
              return inner.join().getFirst();
            }
          });
      List<String> seen = scope.join();
      assertThat(seen.getFirst()).startsWith("fairlead-place").contains("Bound");
      assertThat(seen.getLast()).isEqualTo("inner on fairlead-place");
    }
  }

  @Test
  void aBoundChildOfAClosedOwnerFailsItsFork() {
    Owner owner = runtime.owner("gone", Role.OWNER);
    owner.close();
    try (TaskScope<String> scope = runtime.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
      assertThatIllegalStateException()
          .isThrownBy(
              () ->
                  scope.fork(
                      ForkOptions.DEFAULT.placement(new Placement.Bound(owner)), () -> "never"))
          .withMessageContaining("'gone' is closed");
      assertThat(scope.join()).isEmpty();
    }
  }

  @Test
  void optionsReachTheChild() {
    try (TaskScope<String> scope = runtime.scope()) {
      Fork<String> fork =
          scope.fork(
              ForkOptions.named("n").priority(7).waitMode(WaitMode.SPIN),
              () -> Task.current().name() + Task.current().priority() + Task.current().waitMode());
      assertThat(scope.join()).containsExactly("n7SPIN");
      assertThat(fork.task().parent()).isSameAs(runtime.root());
      assertThat(fork.task().name()).isEqualTo("n");
    }
  }

  // --- misuse

  @Test
  void joiningTwiceIsRefused() {
    try (TaskScope<Integer> scope = runtime.scope()) {
      scope.join();
      assertThatIllegalStateException()
          .isThrownBy(scope::join)
          .withMessageContaining("joined already");
      assertThatIllegalStateException().isThrownBy(() -> scope.fork(() -> 1));
    }
  }

  @Test
  @SuppressWarnings("try") // closes twice on purpose
  void aClosedScopeTakesNoForks() {
    TaskScope<Integer> scope = runtime.scope();
    scope.close();
    scope.close();
    assertThatIllegalStateException()
        .isThrownBy(() -> scope.fork(() -> 1))
        .withMessageContaining("is closed");
    assertThatIllegalStateException().isThrownBy(scope::join);
  }

  @Test
  @SuppressWarnings("try") // the wrong thread closes on purpose
  void anotherTaskOrThreadIsRefused() throws Exception {
    try (TaskScope<Integer> scope = runtime.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
      AtomicReference<Throwable> byThread = new AtomicReference<>();
      Thread thread =
          Thread.ofPlatform()
              .start(
                  () -> {
                    try {
                      scope.close();
                    } catch (IllegalStateException e) {
                      byThread.set(e);
                    }
                  });
      thread.join();
      assertThat(byThread.get()).hasMessageContaining("must be closed by it");
      Fork<Integer> child =
          scope.fork(
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
  @SuppressWarnings("try") // closes in the wrong order on purpose
  void closingOutOfOrderClosesTheInnerAndSaysSo() {
    runtime.<Void>enter(
        "t",
        0,
        () -> {
          TaskScope<Integer> outer = runtime.scope(ScopeOptions.DEFAULT.name("outer"));
          TaskScope<Integer> inner = runtime.scope(ScopeOptions.DEFAULT.name("inner"));
          Fork<Integer> fork = inner.fork(TaskScopeTest::forever);
          assertThatIllegalStateException()
              .isThrownBy(outer::close)
              .withMessageContaining("before its inner scope 'inner'");
          assertThat(fork.state()).isEqualTo(Fork.State.CANCELLED);
          inner.close();
          return null;
        });
  }

  @Test
  void aTaskThatLeavesAScopeOpenFails() {
    AtomicReference<Fork<Integer>> left = new AtomicReference<>();
    assertThatIllegalStateException()
        .isThrownBy(
            () ->
                runtime.<Void>enter(
                    "t",
                    0,
                    () -> {
                      TaskScope<Integer> open = runtime.scope(ScopeOptions.DEFAULT.name("left"));
                      left.set(open.fork(TaskScopeTest::forever));
                      return null;
                    }))
        .withMessageContaining("scope 'left' open");
    assertThat(left.get().state()).isEqualTo(Fork.State.CANCELLED);
  }

  @Test
  void aRunningForkHasNoResultYet() {
    try (TaskScope<Integer> scope = runtime.scope()) {
      Fork<Integer> fork = scope.fork(TaskScopeTest::forever);
      assertThatIllegalStateException()
          .isThrownBy(fork::get)
          .withMessageContaining("join its scope first");
    }
  }

  @Test
  void manyLevelsOfManyChildren() {
    assertThat(count(4)).isEqualTo(1 + 6 + 36 + 216 + 1296);
  }

  private int count(int depth) {
    if (depth == 0) {
      return 1;
    }
    try (TaskScope<Integer> scope = runtime.scope()) {
      for (int i = 0; i < 6; i++) {
        scope.fork(() -> count(depth - 1));
      }
      List<Integer> parts = new ArrayList<>(scope.join());
      return 1 + parts.stream().mapToInt(Integer::intValue).sum();
    }
  }

  static void awaitQuietly(CountDownLatch latch) {
    boolean interrupted = false;
    while (true) {
      try {
        latch.await();
        break;
      } catch (InterruptedException e) {
        interrupted = true;
      }
    }
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
  }

  /** Frames that nobody takes unless their parent waits: it waits for a child of another scope. */
  @Test
  void aParentThatJoinsEagerChildrenGivesAwayWhatOuterScopesForked() {
    try (TaskRuntime shy = TaskRuntime.open(TaskConfig.DEFAULT, Stealing.NEVER)) {
      CountDownLatch outerChildRan = new CountDownLatch(1);
      shy.<Void>enter(
          "parent",
          0,
          () -> {
            try (TaskScope<Void> outer = shy.scope()) {
              outer.fork(
                  () -> {
                    outerChildRan.countDown();
                    return null;
                  });
              try (TaskScope<Boolean> inner = shy.scope()) {
                inner.fork(
                    ForkOptions.DEFAULT.eager(true),
                    () -> outerChildRan.await(20, TimeUnit.SECONDS));
                assertThat(inner.join()).containsExactly(true);
              }
              outer.join();
            }
            return null;
          });
    }
  }

  @Test
  void aForkIntoACancelledScopeEndsOnce() {
    runtime.enter(
        "parent",
        0,
        () -> {
          try (TaskScope<Object> scope =
              runtime.scope(ScopeOptions.DEFAULT.policy(ScopePolicy.COLLECT))) {
            scope.cancel(new IllegalStateException("on purpose"));
            Fork<Object> late = scope.fork(() -> "never");
            assertThat(late.failure()).isInstanceOf(TaskCancelledException.class);
            assertThat(scope.join()).isEmpty();
            assertThat(late.failure()).isInstanceOf(TaskCancelledException.class);
          }
          return "done";
        });
  }
}
