package io.fairlead.task;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.fault.TaskCancelledException;
import java.lang.ref.Reference;
import java.lang.ref.WeakReference;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** What has ended may be kept for its value, and then keeps nothing else of the operation. */
@Timeout(60)
class LetGoTest {

  /** Something of an operation: operands, a closure, a result of others. */
  private static final class Thing {
    int use() {
      return 1;
    }
  }

  /** What is kept, and what must not be reachable from it. */
  private record Kept(Object kept, List<WeakReference<?>> gone) {
    static Kept of(Object kept, Object... gone) {
      List<WeakReference<?>> references = new ArrayList<>();
      for (Object each : gone) {
        references.add(new WeakReference<>(each));
      }
      return new Kept(kept, references);
    }

    void letsGo() {
      try {
        Eventually.holds(
            "all is collected",
            () -> {
              System.gc();
              return gone.stream().allMatch(each -> each.refersTo(null));
            });
      } finally {
        Reference.reachabilityFence(kept);
      }
    }
  }

  private static final class Helper implements WaitHelp {
    final Thing thing = new Thing();

    @Override
    public boolean poll() {
      return false;
    }

    @Override
    public boolean block(long nanos) {
      return false;
    }
  }

  // --- completions
  // --------------------------------------------------------------------------------

  private static Kept settled(Consumer<Completion.Source<String>> settle) {
    Helper helper = new Helper();
    Thing first = new Thing();
    Thing later = new Thing();
    Thing told = new Thing();
    Completion.Source<String> source = Completion.source(helper, first::use);
    source.onCancel(later::use);
    source.completion().onDone(done -> told.use());
    settle.accept(source);
    return Kept.of(source, helper.thing, first, later, told);
  }

  @Test
  void oneThatIsDoneKeepsNothingOfItsOperation() {
    settled(source -> source.complete("value")).letsGo();
  }

  @Test
  void oneThatFailedKeepsNothingOfItsOperation() {
    settled(source -> source.fail(new IllegalStateException("on purpose"))).letsGo();
  }

  @Test
  void oneThatWasCancelledKeepsNothingOfItsOperation() {
    settled(source -> source.completion().cancel()).letsGo();
  }

  @Test
  void oneThatIsCancelledStillTakesItsOperationBackOnce() {
    List<String> told = new ArrayList<>();
    Completion.Source<String> source = Completion.source(null, () -> told.add("first"));
    source.onCancel(() -> told.add("later"));
    assertThat(source.completion().cancel()).isTrue();
    assertThat(source.completion().cancel()).isFalse();
    assertThat(source.complete("late")).isFalse();
    assertThat(told).containsExactly("first", "later");
  }

  @Test
  void whatASettledOneIsWaitedWithIsOver() {
    Completion.Source<String> source = Completion.source(new Helper());
    source.complete("value");
    for (WaitMode mode : WaitMode.values()) {
      assertThat(source.completion().await(mode)).isEqualTo("value");
    }
    Completion<List<String>> all = Completion.all(List.of(source.completion()));
    assertThat(all.await(WaitMode.SPIN, Duration.ofSeconds(1))).containsExactly("value");
  }

  /** The part stays pending, as that of a device that is not lost does. */
  private static Kept cancelledBeside(Completion<Object> pending) {
    Thing closure = new Thing();
    Thing value = new Thing();
    Completion<Object> other = Completion.completed(value);
    Completion.any(List.of(pending, other));
    Completion<List<Object>> all = Completion.all(List.of(pending, other));
    Completion<String> applied =
        pending.thenApply(
            it -> {
              closure.use();
              return "applied";
            });
    all.cancel();
    applied.cancel();
    return Kept.of(pending, closure, value, all, applied);
  }

  @Test
  void aPendingOneKeepsNothingOfCombinationsThatAreOver() {
    cancelledBeside(Completion.source().completion()).letsGo();
  }

  // --- calls and tasks
  // ----------------------------------------------------------------------------

  private static Kept called(Owner owner) {
    Thing operand = new Thing();
    Task[] tasks = new Task[2];
    Completion<Integer> done =
        owner.call(
            () -> {
              tasks[0] = Task.current();
              return operand.use();
            });
    Completion<Integer> failed =
        owner.call(
            () -> {
              tasks[1] = Task.current();
              throw new TaskCancelledException("on purpose " + operand.use(), null);
            });
    done.await();
    Eventually.holds("it has failed", failed::isDone);
    return Kept.of(List.of(done, failed), operand, tasks[0], tasks[1]);
  }

  @Test
  void aCallOnAnOwnerKeepsNothingOfWhatItUsed() {
    try (TaskRuntime runtime = TaskRuntime.open(TaskConfig.DEFAULT)) {
      called(runtime.owner("engine", Role.OWNER)).letsGo();
    }
  }

  private static Kept taskOfScope(TaskRuntime runtime, ForkOptions options) {
    return runtime.enter(
        "parent",
        0,
        () -> {
          Thing operand = new Thing();
          Thing result = new Thing();
          try (TaskScope<Object> scope = runtime.scope()) {
            scope.fork(() -> result);
            Fork<Object> fork = scope.fork(options, operand::use);
            Task asked = fork.task();
            Fork<Object> unasked = scope.fork(operand::use);
            scope.join();
            return Kept.of(List.of(asked, unasked.task()), operand, result, scope);
          }
        });
  }

  @Test
  void aTaskThatHasEndedKeepsNothingOfItsScope() {
    try (TaskRuntime runtime = TaskRuntime.open(TaskConfig.DEFAULT)) {
      taskOfScope(runtime, ForkOptions.DEFAULT).letsGo();
      taskOfScope(runtime, ForkOptions.DEFAULT.eager(true)).letsGo();
    }
  }

  private static Kept forkOf(
      TaskRuntime runtime, ForkOptions options, boolean joins, boolean asks) {
    return runtime.enter(
        "parent",
        0,
        () -> {
          Thing before = new Thing();
          Thing after = new Thing();
          TaskScope<Object> scope = runtime.scope(ScopeOptions.DEFAULT.policy(ScopePolicy.COLLECT));
          scope.fork(options, () -> before);
          Fork<Object> fork = scope.fork(options, () -> "kept");
          scope.fork(options, () -> after);
          if (joins) {
            scope.join();
          }
          scope.close();
          if (asks) {
            assertThat(fork.task().name()).isNotEmpty();
          }
          return Kept.of(fork, before, after, scope);
        });
  }

  @ParameterizedTest
  @CsvSource({"true, true", "true, false", "false, true", "false, false"})
  void aForkThatIsKeptForItsResultKeepsNoneOfItsSiblings(boolean joins, boolean asks) {
    try (TaskRuntime runtime = TaskRuntime.open(TaskConfig.DEFAULT)) {
      forkOf(runtime, ForkOptions.DEFAULT, joins, asks).letsGo();
      forkOf(runtime, ForkOptions.DEFAULT.eager(true), joins, asks).letsGo();
    }
  }

  @Test
  void aClosedScopeStillKnowsItsForksAndTheyTheirTasks() {
    try (TaskRuntime runtime = TaskRuntime.open(TaskConfig.DEFAULT)) {
      runtime.enter(
          "parent",
          0,
          () -> {
            TaskScope<Object> scope =
                runtime.scope(ScopeOptions.DEFAULT.policy(ScopePolicy.COLLECT));
            Fork<Object> one = scope.fork(() -> "one");
            scope.join();
            scope.cancel(new IllegalStateException("late"));
            Fork<Object> other = scope.forks().getFirst();
            scope.close();
            assertThat(scope.forks()).containsExactly(one).containsExactly(other);

            TaskScope<Object> cancelled =
                runtime.scope(ScopeOptions.DEFAULT.policy(ScopePolicy.COLLECT));
            IllegalStateException why = new IllegalStateException("on purpose");
            cancelled.fork(() -> "first");
            cancelled.cancel(why);
            Fork<Object> late = cancelled.fork(() -> "never");
            cancelled.close();
            assertThat(cancelled.forks()).hasSize(2).contains(late);
            Task first = cancelled.forks().getFirst().task();
            assertThat(first.cancelCause()).isSameAs(why);
            assertThat(first.parent()).isSameAs(Task.current());
            assertThat(late.state()).isEqualTo(Fork.State.CANCELLED);
            assertThat(late.failure()).isInstanceOf(TaskCancelledException.class);
            return "done";
          });
    }
  }
}
