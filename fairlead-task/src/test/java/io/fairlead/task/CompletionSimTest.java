package io.fairlead.task;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.fault.DeadlineExceededException;
import io.fairlead.fault.EngineException;
import io.fairlead.fault.TaskCancelledException;
import io.fairlead.fault.TaskInterruptedException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * Many waiters of one completion, each with its own mode and deadline, some cancelled, some
 * interrupted, while several threads try to settle it: one outcome, seen by all, and nobody hangs.
 */
@Timeout(120)
class CompletionSimTest {
  private static final int ROUNDS = 40;

  private record Plan(WaitMode mode, boolean deadline, boolean cancel, boolean interrupt) {
    static Plan random(SplittableRandom random) {
      return new Plan(
          random.nextInt(8) == 0
              ? WaitMode.SPIN
              : random.nextBoolean() ? WaitMode.NONBLOCKING : WaitMode.BLOCKING,
          random.nextInt(3) == 0,
          random.nextInt(5) == 0,
          random.nextInt(5) == 0);
    }
  }

  @ParameterizedTest(name = "seed {0}")
  @MethodSource("io.fairlead.task.Seeds#seeds")
  void oneOutcomeForAll(long seed) {
    SplittableRandom random = new SplittableRandom(seed);
    try (TaskRuntime runtime = TaskRuntime.open(TaskConfig.DEFAULT)) {
      for (int round = 0; round < ROUNDS; round++) {
        round(runtime, random.split(), "seed " + seed + " round " + round);
      }
    }
  }

  private static void round(TaskRuntime runtime, SplittableRandom random, String where) {
    EngineException failure = new EngineException("sim", "on purpose", null);
    Completion.Source<Integer> source = Completion.source();
    Completion<Integer> completion = source.completion();
    AtomicInteger callbacks = new AtomicInteger();
    AtomicInteger wins = new AtomicInteger();
    int waiters = 1 + random.nextInt(24);
    List<Plan> plans = new ArrayList<>();
    List<Fork<String>> forks = new ArrayList<>();
    try (TaskScope<String> scope = runtime.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
      for (int i = 0; i < waiters; i++) {
        Plan plan = Plan.random(random);
        plans.add(plan);
        forks.add(scope.fork(() -> await(completion, plan)));
        completion.onDone(c -> callbacks.incrementAndGet());
      }
      // a second scope, so that those who settle are joined before the waiters are looked at
      List<Integer> kinds = random.ints(1 + random.nextInt(3), 0, 3).boxed().toList();
      CountDownLatch go = new CountDownLatch(1);
      try (TaskScope<Void> settlers = runtime.scope()) {
        for (int kind : kinds) {
          settlers.fork(
              () -> {
                go.await();
                boolean won =
                    switch (kind) {
                      case 0 -> source.complete(42);
                      case 1 -> source.fail(failure);
                      default -> completion.cancel();
                    };
                if (won) {
                  wins.incrementAndGet();
                }
                return null;
              });
        }
        for (int i = 0; i < waiters; i++) {
          if (i == waiters / 2) {
            go.countDown();
          }
          if (plans.get(i).cancel) {
            forks.get(i).task().cancel(null);
          }
          if (plans.get(i).interrupt) {
            forks.get(i).task().interrupt();
          }
        }
        go.countDown();
        settlers.join();
      }
      scope.join();
      assertThat(wins).as(where).hasValue(1);
      assertThat(callbacks).as(where).hasValue(waiters);
      String outcome = outcome(completion);
      for (int i = 0; i < waiters; i++) {
        check(where, plans.get(i), forks.get(i), outcome);
      }
      assertThat(completion.linked()).as(where).isZero();
    }
  }

  private static String outcome(Completion<Integer> completion) {
    return switch (completion.state()) {
      case DONE -> "value " + completion.getNow();
      case FAILED -> "failed";
      case CANCELLED -> "cancelled";
      case PENDING -> "pending";
    };
  }

  private static String await(Completion<Integer> completion, Plan plan) {
    try {
      int value =
          plan.deadline
              ? completion.await(plan.mode, Duration.ofNanos(200_000))
              : completion.await(plan.mode);
      return "value " + value;
    } catch (EngineException e) {
      return "failed";
    } catch (DeadlineExceededException e) {
      return "deadline";
    } catch (TaskInterruptedException e) {
      return "interrupted";
    } catch (TaskCancelledException e) {
      return Task.current().isCancelled() ? "task cancelled" : "cancelled";
    }
  }

  private static void check(String where, Plan plan, Fork<String> fork, String outcome) {
    if (fork.state() != Fork.State.SUCCEEDED) {
      // cancelled before it began
      assertThat(plan.cancel).as(where + " " + plan + " " + fork.failure()).isTrue();
      assertThat(fork.state()).as(where).isEqualTo(Fork.State.CANCELLED);
      return;
    }
    List<String> allowed = new ArrayList<>(List.of(outcome));
    if (plan.deadline) {
      allowed.add("deadline");
    }
    if (plan.cancel) {
      allowed.add("task cancelled");
    }
    if (plan.interrupt || plan.cancel) {
      allowed.add("interrupted"); // a cancel interrupts; which of the two is seen is a race
    }
    assertThat(fork.get()).as(where + " " + plan).isIn(allowed);
  }
}
