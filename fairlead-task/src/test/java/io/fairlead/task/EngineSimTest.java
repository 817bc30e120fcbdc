package io.fairlead.task;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.fault.EngineException;
import io.fairlead.fault.TaskCancelledException;
import java.io.IOException;
import java.util.SplittableRandom;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * Calls that are cancelled, fail, wait for memory and for gates, while factories fail and somebody
 * closes: an instance is never in two calls, everything admitted is given back, nobody hangs.
 */
@Timeout(120)
class EngineSimTest {
  private static final int ROUNDS = 12;
  private static final ThreadRule[] RULES = {ThreadRule.OWNER_ONLY, ThreadRule.ONE_AT_A_TIME};

  private static final class Instance {
    final AtomicInteger inside = new AtomicInteger();
  }

  private static final class World {
    final AtomicInteger made = new AtomicInteger();
    final AtomicInteger destroyed = new AtomicInteger();
    final AtomicLong held = new AtomicLong();
    final AtomicInteger begun = new AtomicInteger();
  }

  @ParameterizedTest(name = "seed {0}")
  @MethodSource("io.fairlead.task.Seeds#seeds")
  void instancesAndMemoryComeBack(long seed) {
    SplittableRandom random = new SplittableRandom(seed);
    try (TaskRuntime runtime = TaskRuntime.open(TaskConfig.DEFAULT.ownerQueue(4))) {
      for (int round = 0; round < ROUNDS; round++) {
        round(runtime, random.split(), "seed " + seed + " round " + round);
      }
    }
  }

  private static void round(TaskRuntime runtime, SplittableRandom random, String where) {
    World world = new World();
    SplittableRandom forFactory = random.split();
    EngineFactory<Instance> factory =
        new EngineFactory<>() {
          @Override
          public Instance create() throws IOException {
            synchronized (forFactory) {
              if (forFactory.nextInt(5) == 0) {
                throw new IOException("sim");
              }
            }
            world.made.incrementAndGet();
            return new Instance();
          }

          @Override
          public void destroy(Instance instance) {
            assertThat(instance.inside).as(where).hasValue(0);
            world.destroyed.incrementAndGet();
          }
        };
    EngineLimits limits =
        EngineLimits.of(1 + random.nextInt(3))
            .queue(random.nextInt(3) == 0 ? 2 : 1_000)
            .admission(bytes -> admit(world, bytes))
            .releaseGate(task -> gate(world));
    Engine<Instance> engine =
        runtime.engine("sim", RULES[random.nextInt(RULES.length)], factory, limits);
    int tasks = 2 + random.nextInt(24);
    int closer = random.nextInt(4) == 0 ? random.nextInt(tasks) : -1;
    try (TaskScope<Integer> scope = runtime.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
      for (int i = 0; i < tasks; i++) {
        SplittableRandom own = random.split();
        boolean closes = i == closer;
        Fork<Integer> fork =
            scope.fork(
                () -> {
                  for (int step = 0; step < 8; step++) {
                    call(engine, world, own, where);
                  }
                  if (closes) {
                    engine.close();
                  }
                  return 1;
                });
        if (random.nextInt(5) == 0) {
          fork.task().cancel(null);
        }
      }
      scope.join();
      for (Fork<Integer> fork : scope.forks()) {
        if (fork.failure() != null) {
          assertThat(fork.failure())
              .as(where)
              .isInstanceOfAny(EngineException.class, TaskCancelledException.class);
        }
      }
    }
    engine.close();
    // an admission that was cancelled gives back when its own thread comes to it
    Eventually.holds(where + ": memory", () -> world.held.get() == 0);
    assertThat(world.destroyed).as(where + ": instances").hasValue(world.made.get());
    assertThat(engine.stats().calls()).as(where).isEqualTo(world.begun.get());
    assertThat(engine.stats().busy()).as(where).isZero();
    assertThat(engine.stats().waiting()).as(where).isZero();
  }

  private static void call(
      Engine<Instance> engine, World world, SplittableRandom random, String where) {
    int kind = random.nextInt(8);
    EngineCall<Instance, Integer> body =
        instance -> {
          world.begun.incrementAndGet();
          assertThat(instance.inside.incrementAndGet()).as(where).isEqualTo(1);
          try {
            if (kind == 0) {
              throw new IOException("sim");
            }
            return 1;
          } finally {
            instance.inside.decrementAndGet();
          }
        };
    try {
      if (kind == 1) {
        engine.tryCall(16, body);
      } else {
        engine.call(kind == 2 ? 0 : 16, body);
      }
    } catch (EngineException e) {
      assertThat(e.getMessage())
          .as(where)
          .containsAnyOf("sim", "is closed", "was closed", "is full");
    }
  }

  private static Completion<AutoCloseable> admit(World world, long bytes) {
    Completion.Source<AutoCloseable> source = Completion.source();
    world.held.addAndGet(bytes);
    AutoCloseable back = () -> world.held.addAndGet(-bytes);
    Thread.ofVirtual()
        .start(
            () -> {
              if (!source.complete(back)) {
                world.held.addAndGet(-bytes);
              }
            });
    return source.completion();
  }

  private static Completion<Integer> gate(World world) {
    Completion.Source<Integer> source = Completion.source();
    boolean fails = (world.begun.get() & 15) == 7;
    Thread.ofVirtual()
        .start(
            () -> {
              if (fails) {
                source.fail(new IOException("sim gate"));
              } else {
                source.complete(1);
              }
            });
    return source.completion();
  }
}
