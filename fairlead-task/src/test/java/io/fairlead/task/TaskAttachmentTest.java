package io.fairlead.task;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatIllegalArgumentException;
import static org.assertj.core.api.Assertions.assertThatIllegalStateException;

import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class TaskAttachmentTest {
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

  /** Records every hook with the thread's and tasks' names. */
  private static final class Recording extends TaskAttachment<String> {
    final List<String> log = new CopyOnWriteArrayList<>();

    @Override
    protected String initial(Task task) {
      log.add("initial " + task.name() + here());
      return "made by " + task.name();
    }

    @Override
    protected String fork(Task parent, String parentValue, Task child) {
      log.add("fork " + parent.name() + "→" + child.name() + here());
      return "after (" + parentValue + ")";
    }

    @Override
    protected void join(Task parent, Task child, String childValue) {
      log.add("join " + parent.name() + "←" + child.name() + " [" + childValue + "]" + here());
    }

    @Override
    protected void end(Task task, String value) {
      log.add("end " + task.name() + " [" + value + "]" + here());
    }

    private static String here() {
      return " in " + Task.current().name();
    }

    void forget() {
      forgetRoot();
    }
  }

  @Test
  void hooksFollowTheStructure() {
    Recording key = new Recording();
    runtime.<Void>enter(
        "p",
        0,
        () -> {
          assertThat(Task.current().peek(key)).isNull();
          assertThat(Task.current().get(key)).isEqualTo("made by p");
          assertThat(Task.current().get(key)).isEqualTo("made by p");
          try (TaskScope<Void> scope = runtime.scope()) {
            scope.fork(
                ForkOptions.named("c"),
                () -> {
                  assertThat(Task.current().get(key)).isEqualTo("after (made by p)");
                  return null;
                });
            scope.join();
            key.log.add("joined");
          }
          return null;
        });
    assertThat(key.log)
        .containsExactly(
            "initial p in p",
            "fork p→c in p",
            "end c [after (made by p)] in c",
            "join p←c [after (made by p)] in p",
            "joined",
            "end p [made by p] in p",
            "join root←p [made by p] in root");
  }

  @Test
  void hooksAlsoRunForChildrenThatFailOrNeverBegin() {
    Recording key = new Recording();
    runtime.<Void>enter(
        "p",
        0,
        () -> {
          Task.current().get(key);
          try (TaskScope<Void> scope = runtime.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
            scope.fork(
                ForkOptions.named("failing"),
                () -> {
                  throw new IllegalArgumentException("on purpose");
                });
            scope.join();
          }
          try (TaskScope<Void> scope = runtime.scope()) {
            scope.cancel(null);
            scope.fork(ForkOptions.named("never"), () -> null);
          } // not joined: close runs the hooks
          return null;
        });
    assertThat(key.log)
        .containsSubsequence(
            "end failing [after (made by p)] in failing",
            "join p←failing [after (made by p)] in p",
            "end never [after (made by p)] in never",
            "join p←never [after (made by p)] in p");
  }

  @Test
  void aFailingEndHookFailsTheTask() {
    TaskAttachment<String> key =
        new TaskAttachment<>() {
          @Override
          protected String initial(Task task) {
            return "v";
          }

          @Override
          protected void end(Task task, String value) {
            throw new IllegalArgumentException("the hook, on purpose");
          }
        };
    try (TaskScope<String> scope = runtime.scope()) {
      scope.fork(() -> Task.current().get(key));
      assertThatIllegalArgumentException()
          .isThrownBy(scope::join)
          .withMessage("the hook, on purpose");
    }
  }

  @Test
  void endHooksMayBringUpOthersWhichEndToo() {
    Recording second = new Recording();
    TaskAttachment<String> first =
        new TaskAttachment<>() {
          @Override
          protected String initial(Task task) {
            return "v";
          }

          @Override
          protected void end(Task task, String value) {
            task.get(second);
          }
        };
    runtime.<Void>enter(
        "t",
        0,
        () -> {
          Task.current().get(first);
          return null;
        });
    assertThat(second.log).contains("end t [made by t] in t");
  }

  @Test
  void rootsValueIsMadeOnceAndSharedUntilForgotten() throws Exception {
    AtomicInteger made = new AtomicInteger();
    Recording forgettable = new Recording();
    TaskAttachment<Integer> key =
        new TaskAttachment<>() {
          @Override
          protected Integer initial(Task task) {
            return made.incrementAndGet();
          }
        };
    Thread[] threads = new Thread[8];
    for (int i = 0; i < threads.length; i++) {
      threads[i] = Thread.ofVirtual().start(() -> runtime.root().get(key));
    }
    for (Thread thread : threads) {
      thread.join();
    }
    assertThat(made).hasValue(1);
    assertThat(runtime.root().get(forgettable)).isEqualTo("made by root");
    forgettable.forget();
    assertThat(runtime.root().peek(forgettable)).isNull();
  }

  @Test
  void anotherTasksValueIsRefused() {
    Recording key = new Recording();
    Task[] other = new Task[1];
    runtime.<Void>enter(
        "other",
        0,
        () -> {
          other[0] = Task.current();
          return null;
        });
    assertThatIllegalStateException()
        .isThrownBy(() -> other[0].get(key))
        .withMessageContaining("by their own task only");
  }

  // --- TaskLocal

  @Test
  void localsAreInheritedAndPutBack() {
    TaskLocal<String> local = TaskLocal.of("none");
    assertThat(local.get()).isEqualTo("none");
    runtime.<Void>enter(
        "p",
        0,
        () -> {
          String result =
              local.where(
                  "set",
                  () -> {
                    try (TaskScope<String> scope = runtime.scope()) {
                      scope.fork(local::get);
                      scope.fork(() -> local.where("inner", local::get));
                      scope.fork(local::get);
                      assertThat(local.get()).isEqualTo("set");
                      return String.join(",", scope.join());
                    }
                  });
          assertThat(result).isEqualTo("set,inner,set");
          assertThat(local.get()).isEqualTo("none");
          return null;
        });
  }

  @Test
  void localsAreNotSetInRoot() {
    TaskLocal<String> local = TaskLocal.of("none");
    assertThatIllegalStateException()
        .isThrownBy(() -> local.where("x", () -> 1))
        .withMessageContaining("call enter(...) first");
  }
}
