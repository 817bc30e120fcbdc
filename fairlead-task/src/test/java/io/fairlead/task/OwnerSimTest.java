package io.fairlead.task;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.fault.EngineException;
import java.util.List;
import java.util.Queue;
import java.util.SplittableRandom;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * Many tasks submit, call, call lent, retire and cancel on an owner with a tiny queue, and somebody
 * closes it at a random moment: what was accepted is done once, what was not is said, nobody hangs.
 */
@Timeout(120)
class OwnerSimTest {
  private static final int ROUNDS = 15;

  private static final class Ledger {
    final AtomicInteger accepted = new AtomicInteger();
    final AtomicInteger ran = new AtomicInteger();
    final AtomicInteger retired = new AtomicInteger();
    final AtomicInteger released = new AtomicInteger();
    final Queue<Completion<?>> calls = new ConcurrentLinkedQueue<>();
  }

  @ParameterizedTest(name = "seed {0}")
  @MethodSource("io.fairlead.task.Seeds#seeds")
  void nothingIsLostOrDoneTwice(long seed) {
    SplittableRandom random = new SplittableRandom(seed);
    for (int round = 0; round < ROUNDS; round++) {
      TaskConfig config =
          new TaskConfig(
              WaitMode.NONBLOCKING,
              2 << random.nextInt(3),
              random.nextInt(3) * 50,
              random.nextInt(3),
              20_000);
      try (TaskRuntime runtime = TaskRuntime.open(config)) {
        round(runtime, random.split(), "seed " + seed + " round " + round);
      }
    }
  }

  private static void round(TaskRuntime runtime, SplittableRandom random, String where) {
    Owner owner = runtime.owner("sim", Role.OWNER);
    Ledger ledger = new Ledger();
    int tasks = 2 + random.nextInt(20);
    int closer = random.nextInt(4) == 0 ? random.nextInt(tasks) : -1;
    try (TaskScope<Void> scope = runtime.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
      for (int i = 0; i < tasks; i++) {
        SplittableRandom own = random.split();
        boolean closes = i == closer;
        Fork<Void> fork =
            scope.fork(
                () -> {
                  for (int step = 0; step < 30; step++) {
                    step(owner, own, ledger);
                  }
                  if (closes) {
                    owner.close();
                  }
                  return null;
                });
        if (random.nextInt(6) == 0) {
          fork.task().cancel(null);
        }
      }
      scope.join();
      for (Fork<Void> fork : scope.forks()) {
        if (fork.state() == Fork.State.FAILED) {
          assertThat(fork.failure())
              .as(where)
              .isInstanceOf(IllegalStateException.class)
              .hasMessageContaining("is closed");
        }
      }
    }
    owner.close();
    assertThat(ledger.ran).as(where).hasValue(ledger.accepted.get());
    assertThat(ledger.released.get() + owner.retiredLate())
        .as(where)
        .isEqualTo(ledger.retired.get());
    assertThat(ledger.calls).as(where).allMatch(Completion::isDone);
    assertThat(owner.queued()).as(where).isZero();
  }

  private static void step(Owner owner, SplittableRandom random, Ledger ledger) throws Exception {
    switch (random.nextInt(6)) {
      case 0 -> {
        if (owner.trySubmit(ledger.ran::incrementAndGet)) {
          ledger.accepted.incrementAndGet();
        }
      }
      case 1 -> ledger.calls.add(owner.call(() -> 1));
      case 2 -> {
        Completion<Integer> call = owner.call(() -> 2);
        call.cancel();
        ledger.calls.add(call);
      }
      case 3 -> assertThat(owner.<Integer>callLent(() -> 3)).isEqualTo(3);
      case 4 -> {
        Completion<Integer> call = owner.tryCall(() -> 4);
        if (call.state() == Completion.State.FAILED) {
          assertThat(call.cause()).isInstanceOf(EngineException.class);
        }
        ledger.calls.add(call);
      }
      default -> {
        for (Retired node : List.of(node(ledger), node(ledger))) {
          ledger.retired.incrementAndGet();
          owner.retire(node);
        }
      }
    }
  }

  private static Retired node(Ledger ledger) {
    return new Retired() {
      @Override
      protected void release() {
        ledger.released.incrementAndGet();
      }
    };
  }
}
