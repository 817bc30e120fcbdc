package io.fairlead.task;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * Random trees of scopes under every policy, with failures, cancellations, interrupts and deadlines
 * from everywhere: no child outlives its scope, hooks balance, join says what its policy says.
 */
@Timeout(120)
class TaskScopeSimTest {
  private static final int ROUNDS = 20;
  private static final List<ScopePolicy> POLICIES = List.of(ScopePolicy.values());

  /** Counts what begins and ends, through the hooks. */
  private static final class Balance extends TaskAttachment<String> {
    final AtomicInteger alive = new AtomicInteger();
    final AtomicInteger forked = new AtomicInteger();
    final AtomicInteger ended = new AtomicInteger();
    final AtomicInteger joined = new AtomicInteger();

    @Override
    protected String initial(Task task) {
      forked.incrementAndGet();
      return "first";
    }

    @Override
    protected String fork(Task parent, String parentValue, Task child) {
      forked.incrementAndGet();
      return "forked";
    }

    @Override
    protected void end(Task task, String value) {
      ended.incrementAndGet();
    }

    @Override
    protected void join(Task parent, Task child, String childValue) {
      joined.incrementAndGet();
    }
  }

  @ParameterizedTest(name = "seed {0}")
  @MethodSource("io.fairlead.task.Seeds#seeds")
  void scopesHold(long seed) {
    for (Stealing stealing : Stealing.values()) {
      scopesHold(seed, stealing);
    }
  }

  private static void scopesHold(long seed, Stealing stealing) {
    SplittableRandom random = new SplittableRandom(seed);
    try (TaskRuntime runtime = TaskRuntime.open(TaskConfig.DEFAULT, stealing)) {
      Owner owner = runtime.owner("sim", Role.OWNER);
      for (int round = 0; round < ROUNDS; round++) {
        Balance balance = new Balance();
        SplittableRandom own = random.split();
        String where = "seed " + seed + " round " + round + " " + stealing;
        try {
          runtime.<Integer>enter("top", 0, () -> tree(runtime, owner, own, balance, 3, where));
        } catch (SimFailure expected) {
          assertThat(expected).as(where).hasMessage("sim");
        } catch (RuntimeException e) {
          assertThat(e.getClass().getPackageName())
              .as(where + ": " + e)
              .isEqualTo("io.fairlead.fault");
        }
        assertThat(Thread.interrupted()).as(where).isFalse();
        assertThat(balance.alive).as(where + ": alive").hasValue(0);
        assertThat(balance.ended).as(where + ": ended").hasValue(balance.forked.get());
        assertThat(balance.joined).as(where + ": joined").hasValue(balance.forked.get());
      }
    }
  }

  @SuppressWarnings("serial") // never serialised
  private static final class SimFailure extends RuntimeException {
    SimFailure() {
      super("sim");
    }
  }

  private static int tree(
      TaskRuntime runtime,
      Owner owner,
      SplittableRandom random,
      Balance balance,
      int depth,
      String where)
      throws Exception {
    balance.alive.incrementAndGet();
    try {
      Task.current().get(balance);
      if (depth == 0) {
        return leaf(random, owner);
      }
      ScopePolicy policy = POLICIES.get(random.nextInt(POLICIES.size()));
      ScopeOptions options = ScopeOptions.of(policy);
      if (random.nextInt(6) == 0) {
        options = options.deadline(Duration.ofNanos(1 + random.nextInt(2_000_000)));
      }
      List<Fork<Integer>> forks;
      try (TaskScope<Integer> scope = runtime.scope(options)) {
        int children = 1 + random.nextInt(5);
        for (int i = 0; i < children; i++) {
          SplittableRandom own = random.split();
          Fork<Integer> fork =
              scope.fork(() -> tree(runtime, owner, own, balance, depth - 1, where));
          disturb(random, scope, fork);
        }
        forks = scope.forks();
        if (random.nextInt(8) != 0) {
          check(where, policy, scope.join(), forks);
        }
      }
      assertThat(forks).as(where).noneMatch(f -> f.state() == Fork.State.RUNNING);
      return forks.size();
    } finally {
      balance.alive.decrementAndGet();
    }
  }

  private static void disturb(
      SplittableRandom random, TaskScope<Integer> scope, Fork<Integer> fork) {
    switch (random.nextInt(30)) {
      case 0 -> fork.task().cancel(new IOException("sim"));
      case 1 -> fork.task().interrupt();
      case 2 -> scope.cancel(new IOException("sim"));
      default -> {}
    }
  }

  private static int leaf(SplittableRandom random, Owner owner) throws Exception {
    return switch (random.nextInt(8)) {
      case 0 -> throw new SimFailure();
      case 1 -> {
        Completion.Source<Integer> source = Completion.source();
        Thread.ofVirtual().start(() -> source.complete(1));
        yield source.completion().await();
      }
      case 2 -> {
        new CountDownLatch(1).await(random.nextInt(200_000), TimeUnit.NANOSECONDS);
        yield 2;
      }
      case 3 -> owner.<Integer>callLent(() -> 3);
      case 4 -> owner.call(() -> 4).await();
      default -> 5;
    };
  }

  private static void check(
      String where, ScopePolicy policy, List<Integer> results, List<Fork<Integer>> forks) {
    List<Integer> successes =
        forks.stream().filter(f -> f.state() == Fork.State.SUCCEEDED).map(Fork::get).toList();
    switch (policy) {
      case ALL_SUCCEED -> assertThat(results).as(where).hasSize(forks.size()).isEqualTo(successes);
      case FIRST_SUCCESS -> assertThat(successes).as(where).containsAll(results).isNotEmpty();
      case COLLECT -> assertThat(results).as(where).isEqualTo(successes);
    }
  }
}
