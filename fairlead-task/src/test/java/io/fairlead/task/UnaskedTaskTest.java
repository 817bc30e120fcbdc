package io.fairlead.task;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatExceptionOfType;

import io.fairlead.fault.TaskCancelledException;
import io.fairlead.fault.TaskInterruptedException;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Children that run in place have a task only once somebody asks for it, which nobody notices. */
@Timeout(60)
class UnaskedTaskTest {
  private TaskRuntime runtime;

  @BeforeEach
  void open() {
    runtime = TaskRuntime.open(TaskConfig.DEFAULT, Stealing.NEVER); // all children run in place
  }

  @AfterEach
  void close() {
    runtime.close();
    assertThat(Thread.interrupted()).as("no interrupt is left behind").isFalse();
  }

  private <T> T inTask(TaskBody<T> body) {
    return runtime.enter("parent", 3, body);
  }

  @Test
  void aChildThatNobodyAsksHasNone() {
    inTask(
        () -> {
          try (TaskScope<Integer> scope = runtime.scope()) {
            Fork<Integer> fork = scope.fork(() -> 7);
            assertThat(scope.join()).containsExactly(7);
            assertThat(fork.taskIfAsked()).isNull();
          }
          return 0;
        });
  }

  @Test
  void oneThatIsAskedAfterItsEndIsAsIfItHadAlwaysBeenThere() {
    inTask(
        () -> {
          try (TaskScope<Integer> scope = runtime.scope()) {
            Fork<Integer> fork = scope.fork(() -> 7);
            scope.join();
            Task task = fork.task();
            assertThat(fork.task()).isSameAs(task);
            assertThat(task.parent()).isSameAs(Task.current());
            assertThat(task.priority()).isEqualTo(3);
            assertThat(task.placement()).isEqualTo(Placement.FREE);
            assertThat(task.name()).isEqualTo("task-" + task.id());
            assertThat(task.isCancelled()).isFalse();
            task.cancel(null); // too late, and harmless
            assertThat(fork.state()).isEqualTo(Fork.State.SUCCEEDED);
          }
          return 0;
        });
  }

  @Test
  void aChildThatAsksIsTheOneThatItsParentSees() {
    inTask(
        () -> {
          try (TaskScope<Task> scope = runtime.scope()) {
            Fork<Task> fork = scope.fork(Task::current);
            Task seen = scope.join().getFirst();
            assertThat(fork.task()).isSameAs(seen);
            assertThat(seen.isRoot()).isFalse();
            assertThat(Task.current().name()).isEqualTo("parent");
          }
          return 0;
        });
  }

  @Test
  void childrenInsideChildrenHaveTheRightParents() {
    inTask(
        () -> {
          Task outer = Task.current();
          try (TaskScope<Task> scope = runtime.scope()) {
            scope.fork(
                () -> {
                  try (TaskScope<Task> inner = runtime.scope()) {
                    Fork<Task> grandchild = inner.fork(Task::current);
                    inner.join();
                    assertThat(grandchild.task().parent()).isSameAs(Task.current());
                    assertThat(Task.current().parent()).isSameAs(outer);
                  }
                  return Task.current();
                });
            scope.join();
          }
          assertThat(Task.current()).isSameAs(outer);
          return 0;
        });
  }

  /** An inline call enters another task, and the child's own is current again afterwards. */
  @Test
  void aTaskThatIsEnteredInsideAChildHasTheChildForItsParent() {
    inTask(
        () -> {
          try (TaskScope<Task> scope = runtime.scope()) {
            Fork<Task> fork =
                scope.fork(() -> runtime.enter("inner", 0, () -> Task.current().parent()));
            scope.join();
            assertThat(fork.get()).isSameAs(fork.task());
          }
          return 0;
        });
  }

  @Test
  void oneThatRunsIsStoppedByWhoeverAsksForItsTask() {
    CountDownLatch runs = new CountDownLatch(1);
    AtomicReference<Fork<Integer>> forked = new AtomicReference<>();
    Thread canceller =
        Thread.ofPlatform()
            .start(
                () -> {
                  await(runs);
                  forked.get().task().cancel(null);
                });
    inTask(
        () -> {
          try (TaskScope<Integer> scope = runtime.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
            Fork<Integer> fork =
                scope.fork(
                    () -> {
                      runs.countDown();
                      while (!Thread.currentThread().isInterrupted()) {
                        LockSupport.park();
                      }
                      Task.current().checkCancelled();
                      return 1;
                    });
            forked.set(fork);
            Fork<Integer> next = scope.fork(() -> 2);
            scope.join();
            assertThat(fork.state()).isEqualTo(Fork.State.CANCELLED);
            assertThat(fork.failure()).isInstanceOf(TaskCancelledException.class);
            assertThat(next.get()).as("the one after it is not interrupted").isEqualTo(2);
          }
          return 0;
        });
    join(canceller);
  }

  @Test
  void oneThatRunsIsInterruptedThroughItsTask() {
    CountDownLatch runs = new CountDownLatch(1);
    AtomicReference<Fork<Integer>> forked = new AtomicReference<>();
    Thread interrupter =
        Thread.ofPlatform()
            .start(
                () -> {
                  await(runs);
                  forked.get().task().interrupt();
                });
    inTask(
        () -> {
          try (TaskScope<Integer> scope = runtime.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
            Fork<Integer> fork =
                scope.fork(
                    () -> {
                      runs.countDown();
                      return Completion.<Integer>source().completion().await();
                    });
            forked.set(fork);
            scope.join();
            assertThat(fork.failure()).isInstanceOf(TaskInterruptedException.class);
          }
          return 0;
        });
    join(interrupter);
  }

  @Test
  void thoseOfAScopeThatWasCancelledAreCancelledWheneverTheyAreAsked() {
    inTask(
        () -> {
          try (TaskScope<Integer> scope = runtime.scope()) {
            Fork<Integer> before = scope.fork(() -> 1);
            Fork<Integer> fails =
                scope.fork(
                    () -> {
                      throw new IllegalArgumentException("on purpose");
                    });
            Fork<Integer> after = scope.fork(() -> 3);
            assertThatExceptionOfType(IllegalArgumentException.class).isThrownBy(scope::join);
            for (Fork<Integer> each : List.of(before, fails, after)) {
              assertThat(each.task().isCancelled()).isTrue();
            }
            assertThat(after.state()).isEqualTo(Fork.State.CANCELLED);
            assertThat(before.get()).isEqualTo(1);
          }
          return 0;
        });
  }

  @Test
  void aScopeThatIsCancelledMakesNoTasksForChildrenThatHaveEnded() {
    inTask(
        () -> {
          try (TaskScope<Integer> scope = runtime.scope()) {
            Fork<Integer> before = scope.fork(() -> 1);
            Fork<Integer> fails =
                scope.fork(
                    () -> {
                      throw new IllegalArgumentException("on purpose");
                    });
            assertThatExceptionOfType(IllegalArgumentException.class).isThrownBy(scope::join);
            assertThat(before.taskIfAsked()).isNull();
            assertThat(fails.state()).isEqualTo(Fork.State.FAILED);
            assertThat(before.task().isCancelled()).as("whenever it is made").isTrue();
          }
          return 0;
        });
  }

  @Test
  void whatTheParentHasAttachedIsInheritedAsItWasAtTheFork() {
    TaskLocal<String> local = TaskLocal.of("none");
    inTask(
        () -> {
          try (TaskScope<String> scope = runtime.scope()) {
            local.where("one", () -> scope.fork(local::get));
            local.where("two", () -> scope.fork(local::get));
            assertThat(scope.join()).containsExactly("one", "two");
          }
          return 0;
        });
  }

  private static void await(CountDownLatch latch) {
    try {
      latch.await();
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
  }

  private static void join(Thread thread) {
    try {
      thread.join();
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
  }
}
