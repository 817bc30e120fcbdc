package io.fairlead.task;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.fault.EngineException;
import io.fairlead.fault.Mutant;
import io.fairlead.fault.TaskInterruptedException;
import java.util.Map;
import java.util.Set;
import java.util.SplittableRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReferenceArray;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.LongStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * Guarded calls of a native library that checks its thread rule by itself ({@link StrictEngine}),
 * by tasks that yield, are stolen, cancelled and interrupted in mid-call, while the engine is
 * closed. None is wrong, and none is lost: whoever asks gets its own answer, or hears that its call
 * did not begin, or was stopped inside; the library counts as many calls as bodies have begun. On
 * own carriers, and once more on the JDK's.
 *
 * <p>30,000 calls, since a busy machine takes a millisecond to hand one over; with {@code
 * -Dfairlead.long=true} 10,000,000.
 */
@Timeout(value = 60, unit = TimeUnit.MINUTES)
@SuppressWarnings("ThreadPriorityCheck") // yielding is what brings a task to another thread
class GuardedCallsSimTest {
  private static final boolean LONG = Boolean.getBoolean("fairlead.long");

  /** Of each rule; three make 10^7. */
  private static final long CALLS = (LONG ? 10_000_000L : 30_000L) / 3 + 1;

  private static final int TASKS = 32;
  private static final int CALLS_EACH = 200;
  private static final int CHILDREN = 3;
  private static final int CALLS_OF_CHILD = 8;

  /** How calls get to the library: through an engine's pool, or through a gate alone. */
  private interface Way {
    long call(EngineCall<StrictEngine, Long> body);

    /** Whether calls may be under way when it is closed. */
    boolean closesInOrder();

    void close();
  }

  /** What became of the calls. */
  private static final class Tally {
    final LongAdder asked = new LongAdder();
    final LongAdder begun = new LongAdder();
    final LongAdder answered = new LongAdder();
    final LongAdder notBegun = new LongAdder();
    final LongAdder stoppedInside = new LongAdder();
    final LongAdder wrongAnswers = new LongAdder();
    final LongAdder closed = new LongAdder();
    final LongAdder counted = new LongAdder();
    final LongAdder moved = new LongAdder();

    @Override
    public String toString() {
      return begun
          + " calls: "
          + answered
          + " answered, "
          + stoppedInside
          + " stopped inside; "
          + notBegun
          + " more did not begin, "
          + closed
          + " of them since the engine was closed; "
          + moved
          + " times a task was on another thread than before";
    }
  }

  /** One engine, and the tasks that use it. */
  private static final class Round {
    private final TaskRuntime runtime;
    private final ThreadRule rule;
    private final Tally tally;
    private final Way way;
    private final Strand strand;
    private final AtomicReferenceArray<Task> tasks = new AtomicReferenceArray<>(TASKS);

    Round(TaskRuntime runtime, ThreadRule rule, Tally tally, SplittableRandom random) {
      this.runtime = runtime;
      this.rule = rule;
      this.tally = tally;
      this.strand = runtime.strand("strict");
      this.way = random.nextBoolean() ? engine(1 + random.nextInt(3)) : gate();
    }

    private Way engine(int instances) {
      EngineFactory<StrictEngine> factory =
          new EngineFactory<>() {
            @Override
            public StrictEngine create() {
              return StrictEngine.make(rule, true);
            }

            @Override
            public Binding binding(StrictEngine instance) {
              return instance.binding();
            }

            @Override
            public void destroy(StrictEngine instance) {
              tally.counted.add(instance.end());
            }
          };
      Engine<StrictEngine> engine =
          runtime.engine("strict", rule, factory, EngineLimits.of(instances));
      return new Way() {
        @Override
        public long call(EngineCall<StrictEngine, Long> body) {
          return engine.<Long>call(0, body);
        }

        @Override
        public boolean closesInOrder() {
          return true;
        }

        @Override
        public void close() {
          engine.close();
        }
      };
    }

    private Way gate() {
      Owner owner = rule == ThreadRule.OWNER_ONLY ? runtime.owner("strict", Role.OWNER) : null;
      boolean alone = rule != ThreadRule.CONTEXT_CURRENT;
      StrictEngine instance = at(owner, () -> StrictEngine.make(rule, alone));
      Gate gate = Gate.of("strict", rule, owner, Set.of(), alone ? null : instance.binding());
      return new Way() {
        @Override
        public long call(EngineCall<StrictEngine, Long> body) {
          return gate.<Long>call("call", () -> body.call(instance));
        }

        @Override
        public boolean closesInOrder() {
          return false;
        }

        @Override
        public void close() {
          tally.counted.add(at(owner, instance::end));
          if (owner != null) {
            owner.close();
          }
        }
      };
    }

    private static <T> T at(Owner owner, TaskBody<T> body) {
      try {
        return owner == null ? body.run() : owner.call(body).awaitUninterruptibly();
      } catch (Exception e) {
        throw new AssertionError(e);
      }
    }

    // --- the tasks

    void run(SplittableRandom random) {
      int closer = random.nextBoolean() ? random.nextInt(TASKS) : -1;
      try (TaskScope<Integer> scope = runtime.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
        for (int i = 0; i < TASKS; i++) {
          int number = i;
          SplittableRandom own = random.split();
          boolean closes = i == closer && way.closesInOrder();
          scope.fork(options(own), () -> caller(number, closes, own));
        }
        scope.join();
        for (Fork<Integer> fork : scope.forks()) {
          if (fork.failure() != null && fork.state() != Fork.State.CANCELLED) {
            throw new AssertionError("a task failed", fork.failure());
          }
        }
      }
      way.close();
    }

    private ForkOptions options(SplittableRandom random) {
      return switch (random.nextInt(6)) {
        case 0 -> ForkOptions.DEFAULT.eager(true);
        case 1 -> ForkOptions.DEFAULT.placement(Placement.INITIAL);
        case 2 -> ForkOptions.DEFAULT.placement(new Placement.Serial(strand));
        default -> ForkOptions.DEFAULT;
      };
    }

    private int caller(int number, boolean closes, SplittableRandom random) {
      tasks.set(number, Task.current());
      int closesAt = closes ? random.nextInt(CALLS_EACH) : -1;
      long last = 0;
      for (int i = 0; i < CALLS_EACH; i++) {
        if (i == closesAt) {
          way.close();
        }
        if (!step(random, (long) number << 32 | (long) i << 8)) {
          return i;
        }
        if (random.nextInt(100) == 0) {
          children(number, i, random);
        }
        long now = StrictEngine.here();
        if (last != 0 && last != now) {
          tally.moved.increment();
        }
        last = now;
      }
      return CALLS_EACH;
    }

    /** A task that calls has children that call. */
    private void children(int number, int i, SplittableRandom random) {
      try (TaskScope<Integer> scope = runtime.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
        for (int child = 1; child <= CHILDREN; child++) {
          long call = (long) number << 32 | (long) i << 8 | child << 4;
          SplittableRandom own = random.split();
          scope.fork(
              () -> {
                int calls = 0;
                while (calls < CALLS_OF_CHILD && step(own, call | calls)) {
                  calls++;
                }
                return calls;
              });
        }
        scope.join();
      } catch (TaskInterruptedException again) {
        Task.interrupted();
      }
    }

    /** False once the engine is closed. */
    private boolean step(SplittableRandom random, long call) {
      try {
        between(random);
        call(random, call);
        return true;
      } catch (TaskInterruptedException again) {
        Task.interrupted();
        return true;
      } catch (EngineException closed) {
        assertThat(closed).hasMessageContaining("closed");
        tally.closed.increment();
        return false;
      }
    }

    private void between(SplittableRandom random) {
      switch (random.nextInt(1_024)) {
        case 0 -> Eventually.suspend();
        case 1 -> LockSupport.parkNanos(1 + random.nextInt(20_000));
        case 2, 3 -> Task.current().checkCancelled();
        default -> {
          if (random.nextInt(4) == 0) {
            Thread.yield();
          }
        }
      }
    }

    private void call(SplittableRandom random, long call) {
      boolean[] begun = {false};
      tally.asked.increment();
      try {
        long answer =
            way.call(
                engine -> {
                  begun[0] = true;
                  tally.begun.increment();
                  return inside(engine, call, random);
                });
        tally.answered.increment();
        if (answer != ~call) {
          tally.wrongAnswers.increment();
        }
      } catch (RuntimeException stop) {
        (begun[0] ? tally.stoppedInside : tally.notBegun).increment();
        throw stop;
      }
    }

    private long inside(StrictEngine engine, long call, SplittableRandom random) {
      engine.enter(call);
      try {
        inMidCall(random);
        return ~call;
      } finally {
        engine.leave(call);
      }
    }

    private void inMidCall(SplittableRandom random) {
      switch (random.nextInt(2_048)) {
        case 0, 1 -> someTask(random).cancel(null);
        case 2, 3, 4, 5 -> someTask(random).interrupt();
        case 6 -> {
          Task.current().cancel(null);
          Task.current().checkCancelled();
        }
        case 7, 8 -> {
          Task.current().interrupt();
          Task.current().checkCancelled();
        }
        case 9 -> {
          if (rule != ThreadRule.CONTEXT_CURRENT) { // which must not suspend
            LockSupport.parkNanos(1 + random.nextInt(20_000));
          }
        }
        default -> {
          if (random.nextInt(16) == 0) {
            Task.current().checkCancelled(); // so that kills by others are seen in mid-call
          }
          if (rule == ThreadRule.ONE_AT_A_TIME && random.nextInt(8) == 0) {
            Thread.yield();
          }
        }
      }
    }

    private Task someTask(SplittableRandom random) {
      Task some = tasks.get(random.nextInt(TASKS));
      return some == null ? Task.current() : some;
    }
  }

  private static Tally run(ThreadRule rule, long seed, long calls) {
    StrictEngine.begin();
    SplittableRandom random = new SplittableRandom(seed);
    Tally tally = new Tally();
    Stealing[] stealing = Stealing.values();
    while (tally.begun.sum() < calls) {
      try (TaskRuntime runtime =
          TaskRuntime.open(TaskConfig.DEFAULT, stealing[random.nextInt(stealing.length)])) {
        for (int i = 0; i < 4 && tally.begun.sum() < calls; i++) {
          new Round(runtime, rule, tally, random.split()).run(random.split());
        }
      }
    }
    return tally;
  }

  static Stream<Arguments> rulesAndSeeds() {
    long[] seeds = LONG ? new long[] {fresh()} : new long[] {1, fresh()};
    return rules().flatMap(rule -> LongStream.of(seeds).mapToObj(seed -> Arguments.of(rule, seed)));
  }

  private static long fresh() {
    Long wanted = Long.getLong("fairlead.seed");
    return wanted == null ? System.nanoTime() & 0xffff_ffffL : wanted;
  }

  static Stream<ThreadRule> rules() {
    return Stream.of(ThreadRule.OWNER_ONLY, ThreadRule.ONE_AT_A_TIME, ThreadRule.CONTEXT_CURRENT);
  }

  @ParameterizedTest(name = "{0}, seed {1}")
  @MethodSource("rulesAndSeeds")
  void noneIsWrongAndNoneIsLost(ThreadRule rule, long seed) {
    StrictEngine.available();
    long calls = LONG ? CALLS : CALLS / 2;
    Map<StrictEngine.Wrong, Long> before = StrictEngine.wrongs();
    long start = System.nanoTime();
    Tally tally = run(rule, seed, calls);
    String what =
        String.format(
            "%s, -Dfairlead.seed=%d, %.1f s: %s",
            rule, seed, (System.nanoTime() - start) / 1e9, tally);
    System.out.println(what);
    assertThat(wrongSince(before)).as(what).isEmpty();
    assertThat(tally.wrongAnswers.sum()).as(what).isZero();
    assertThat(tally.counted.sum())
        .as("%s: counted by the library", what)
        .isEqualTo(tally.begun.sum());
    assertThat(tally.answered.sum() + tally.stoppedInside.sum())
        .as(what)
        .isEqualTo(tally.begun.sum());
    assertThat(tally.begun.sum() + tally.notBegun.sum()).as(what).isEqualTo(tally.asked.sum());
    if (LONG) {
      assertThat(tally.stoppedInside.sum()).as("%s: kills in mid-call", what).isPositive();
      assertThat(tally.closed.sum()).as("%s: closed in between", what).isPositive();
      assertThat(tally.moved.sum()).as("%s: tasks that moved", what).isPositive();
    }
  }

  @ParameterizedTest
  @MethodSource("rules")
  void aCallThatSlipsPastItsGateIsFound(ThreadRule rule) {
    StrictEngine.available();
    StrictEngine.Wrong expected =
        switch (rule) {
          case OWNER_ONLY -> StrictEngine.Wrong.OTHER_THREAD;
          case ONE_AT_A_TIME -> StrictEngine.Wrong.TWO_AT_ONCE;
          case CONTEXT_CURRENT -> StrictEngine.Wrong.NOT_CURRENT;
          case ANY_THREAD -> throw new AssertionError(rule);
        };
    assertThat(wrongWith("gate.let-through", rule)).contains(expected);
  }

  @Test
  void aContextThatStaysCurrentIsFound() {
    StrictEngine.available();
    assertThat(wrongWith("gate.keeps-context", ThreadRule.CONTEXT_CURRENT))
        .contains(StrictEngine.Wrong.LEFT_CURRENT);
  }

  private static Set<StrictEngine.Wrong> wrongWith(String mutant, ThreadRule rule) {
    Map<StrictEngine.Wrong, Long> before = StrictEngine.wrongs();
    try (Mutant.Handle _ = Mutant.enable(mutant)) {
      run(rule, 1, 20_000);
    }
    return wrongSince(before).keySet();
  }

  private static Map<StrictEngine.Wrong, Long> wrongSince(Map<StrictEngine.Wrong, Long> before) {
    Map<StrictEngine.Wrong, Long> found = StrictEngine.wrongs();
    found.replaceAll((kind, count) -> count - before.get(kind));
    found.values().removeIf(count -> count == 0);
    return found;
  }
}
