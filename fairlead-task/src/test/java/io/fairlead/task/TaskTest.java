package io.fairlead.task;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatExceptionOfType;
import static org.assertj.core.api.Assertions.assertThatIllegalArgumentException;
import static org.assertj.core.api.Assertions.assertThatIllegalStateException;

import io.fairlead.fault.TaskCancelledException;
import io.fairlead.fault.TaskFailedException;
import io.fairlead.fault.TaskInterruptedException;
import java.io.IOException;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class TaskTest {
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

  @Test
  void unenteredThreadsAreRoot() {
    assertThat(Task.current()).isSameAs(runtime.root());
    assertThat(Task.current().isRoot()).isTrue();
    assertThat(Task.current().parent()).isNull();
    assertThatIllegalStateException().isThrownBy(() -> runtime.root().cancel(null));
    assertThatIllegalStateException().isThrownBy(() -> runtime.root().interrupt());
  }

  @Test
  void anEnteredThreadIsATaskForTheBody() {
    Task inside =
        runtime.enter(
            "guest",
            5,
            () -> {
              Task task = Task.current();
              assertThat(task.name()).isEqualTo("guest");
              assertThat(task.priority()).isEqualTo(5);
              assertThat(task.isRoot()).isFalse();
              assertThat(task.parent()).isSameAs(runtime.root());
              assertThat(task.waitMode()).isEqualTo(WaitMode.NONBLOCKING);
              assertThat(task.placement()).isEqualTo(Placement.FREE);
              return task;
            });
    assertThat(Task.current()).isSameAs(runtime.root());
    assertThat(inside.toString()).contains("guest");
  }

  @Test
  void enteringAgainIsAChild() {
    runtime.<Void>enter(
        "outer",
        0,
        () -> {
          Task outer = Task.current();
          runtime.<Void>enter(
              "inner",
              0,
              () -> {
                assertThat(Task.current().parent()).isSameAs(outer);
                return null;
              });
          assertThat(Task.current()).isSameAs(outer);
          return null;
        });
  }

  @Test
  void enterThrowsWhatTheBodyThrows() {
    assertThatIllegalArgumentException()
        .isThrownBy(
            () ->
                runtime.enter(
                    "t",
                    0,
                    () -> {
                      throw new IllegalArgumentException("as it is");
                    }))
        .withMessage("as it is");
    IOException checked = new IOException();
    assertThatExceptionOfType(TaskFailedException.class)
        .isThrownBy(
            () ->
                runtime.enter(
                    "t",
                    0,
                    () -> {
                      throw checked;
                    }))
        .withCause(checked);
  }

  @Test
  void anInterruptReachesTheTaskItIsFor() {
    AtomicReference<Task> task = new AtomicReference<>();
    try (TaskScope<Boolean> scope = runtime.scope()) {
      scope.fork(
          () -> {
            task.set(Task.current());
            try {
              Completion.source().completion().await();
              return false;
            } catch (TaskInterruptedException e) {
              boolean stays = Task.current().isInterrupted();
              boolean cleared = Task.interrupted();
              return stays
                  && cleared
                  && !Task.current().isInterrupted()
                  && !Thread.currentThread().isInterrupted();
            }
          });
      Eventually.holds("it runs", () -> task.get() != null);
      task.get().interrupt();
      assertThat(scope.join()).containsExactly(true);
    }
  }

  @Test
  void anInterruptOfAnEnteredThreadIsAnInterruptOfItsTask() {
    runtime.<Void>enter(
        "t",
        0,
        () -> {
          Thread.currentThread().interrupt();
          assertThat(Task.current().isInterrupted()).isTrue();
          assertThatExceptionOfType(TaskInterruptedException.class)
              .isThrownBy(Task.current()::checkCancelled);
          assertThat(Task.interrupted()).isTrue();
          Task.current().checkCancelled();
          return null;
        });
  }

  @Test
  void aCancelledEnterLeavesNoInterruptOnTheGuestsThread() {
    AtomicReference<Task> task = new AtomicReference<>();
    Thread canceller =
        new Thread(
            () -> {
              Eventually.holds("entered", () -> task.get() != null);
              task.get().cancel(new IOException("enough"));
            });
    canceller.start();
    assertThatExceptionOfType(TaskCancelledException.class)
        .isThrownBy(
            () ->
                runtime.enter(
                    "t",
                    0,
                    () -> {
                      task.set(Task.current());
                      return Completion.source().completion().await();
                    }))
        .withMessageContaining("enough");
    assertThat(Thread.currentThread().isInterrupted()).isFalse();
  }

  /** The canceller sets the flag, then interrupts: a look at both may fall between the two. */
  @Test
  void aCancelledTaskIsNeverTakenForAnInterruptedOne() {
    // or so long: on a busy machine a round may take as long as a slice of its scheduler
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(10);
    for (int round = 0; round < 20_000 && System.nanoTime() - end < 0; round++) {
      AtomicReference<Task> victim = new AtomicReference<>();
      Thread canceller = Thread.ofVirtual().start(() -> cancelOnceThere(victim));
      assertThatExceptionOfType(TaskCancelledException.class)
          .isThrownBy(() -> runtime.enter("victim", 0, () -> checkUntilStopped(victim)));
      join(canceller);
      Thread.interrupted();
    }
  }

  @SuppressWarnings("ThreadPriorityCheck") // the victim may need this processor
  private static void cancelOnceThere(AtomicReference<Task> victim) {
    Task found = victim.get();
    while (found == null) {
      Thread.yield();
      found = victim.get();
    }
    found.cancel(null);
  }

  private static Void checkUntilStopped(AtomicReference<Task> self) {
    Task task = Task.current();
    self.set(task);
    for (; ; ) {
      task.checkCancelled();
    }
  }

  private static void join(Thread thread) {
    try {
      thread.join();
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
  }

  /** Threads that a task starts plainly inherit its scheduler, and are no part of it. */
  @Test
  void everyoneFindsOnlyTheirOwnTaskWhereverTheyGoOn() {
    try (TaskScope<Integer> scope = runtime.scope()) {
      for (int i = 0; i < 50; i++) {
        scope.fork(
            () -> {
              Task self = Task.current();
              AtomicReference<Throwable> wrong = new AtomicReference<>();
              Thread plain = Thread.ofVirtual().start(() -> enterAndMove(wrong));
              moveAround(self);
              join(plain);
              assertThat(wrong).hasNullValue();
              assertThat(Task.current()).isSameAs(self);
              return 1;
            });
      }
      assertThat(scope.join()).hasSize(50);
    }
  }

  private void enterAndMove(AtomicReference<Throwable> wrong) {
    try {
      assertThat(Task.current()).isSameAs(runtime.root());
      runtime.enter(
          "plain",
          0,
          () -> {
            moveAround(Task.current());
            return null;
          });
      assertThat(Task.current()).isSameAs(runtime.root());
    } catch (Throwable thrown) {
      wrong.set(thrown);
    }
  }

  @SuppressWarnings("ThreadPriorityCheck") // so that it goes on elsewhere
  private static void moveAround(Task self) {
    assertThat(self.isRoot()).isFalse();
    for (int step = 0; step < 2_000; step++) {
      Completion.Source<Integer> source = Completion.source();
      Thread.startVirtualThread(() -> source.complete(1));
      Thread.yield();
      source.completion().await();
      if (Task.current() != self) {
        throw new AssertionError("step " + step + ": " + Task.current() + " instead of " + self);
      }
    }
  }

  @Test
  void checkCancelledSaysWhy() {
    runtime.<Void>enter(
        "t",
        0,
        () -> {
          Task.current().checkCancelled();
          IOException why = new IOException("why");
          Task.current().cancel(why);
          Task.current().cancel(new IOException("too late"));
          assertThatExceptionOfType(TaskCancelledException.class)
              .isThrownBy(Task.current()::checkCancelled)
              .withCause(why);
          return null;
        });
  }

  @Test
  void rootWaitsAsTheRuntimeOpenedLast() {
    try (TaskRuntime spinning = TaskRuntime.open(TaskConfig.DEFAULT.waitMode(WaitMode.SPIN))) {
      assertThat(spinning.root().waitMode()).isEqualTo(WaitMode.SPIN);
      assertThat(spinning.<WaitMode>enter("t", 0, () -> Task.current().waitMode()))
          .isEqualTo(WaitMode.SPIN);
    }
    assertThat(runtime.root().waitMode()).isEqualTo(WaitMode.NONBLOCKING);
  }

  @Test
  void aClosedRuntimeTakesNothing() {
    TaskRuntime closed = TaskRuntime.open(TaskConfig.DEFAULT);
    Owner owner = closed.owner("o", Role.OWNER);
    closed.close();
    closed.close();
    assertThat(owner.ended().isDone()).isTrue();
    assertThatIllegalStateException().isThrownBy(closed::scope);
    assertThatIllegalStateException().isThrownBy(() -> closed.enter("t", 0, () -> 1));
    assertThatIllegalStateException().isThrownBy(() -> closed.register(() -> 0));
    assertThatIllegalStateException().isThrownBy(() -> closed.owner("o", Role.OWNER));
    assertThatIllegalStateException()
        .isThrownBy(() -> closed.engine("e", ThreadRule.ANY_THREAD, () -> 1, EngineLimits.of(1)));
  }

  @Test
  void configurationNamesWhatIsWrong() {
    Properties properties = new Properties();
    assertThat(TaskConfig.from(properties)).isEqualTo(TaskConfig.DEFAULT);
    properties.setProperty("fairlead.sync", "Spin");
    assertThat(TaskConfig.from(properties).waitMode()).isEqualTo(WaitMode.SPIN);
    properties.setProperty("fairlead.sync", "sleepy");
    assertThatIllegalArgumentException()
        .isThrownBy(() -> TaskConfig.from(properties))
        .withMessage(
            "property fairlead.sync: wait mode 'sleepy': use nonblocking, blocking or spin");
    assertThatIllegalArgumentException()
        .isThrownBy(() -> TaskConfig.DEFAULT.ownerQueue(3))
        .withMessageContaining("a power of two");
    assertThatIllegalArgumentException().isThrownBy(() -> TaskConfig.DEFAULT.pollParkNanosMax(1));
  }

  @Test
  void unregisteredSourcesAreNotPolledAnyMore() {
    java.util.concurrent.atomic.AtomicInteger polls =
        new java.util.concurrent.atomic.AtomicInteger();
    PollSource source = () -> polls.incrementAndGet() > 0 ? 0 : 1;
    runtime.register(source);
    Eventually.holds("polled", () -> polls.get() > 10);
    runtime.unregister(source);
    Completion.Source<Integer> round = Completion.source();
    runtime.register(() -> round.complete(1) ? 1 : 0); // a later round has begun
    round.completion().await();
    int after = polls.get();
    Completion.Source<Integer> next = Completion.source();
    runtime.register(() -> next.complete(1) ? 1 : 0);
    next.completion().await();
    assertThat(polls.get()).isBetween(after, after + 1);
  }
}
