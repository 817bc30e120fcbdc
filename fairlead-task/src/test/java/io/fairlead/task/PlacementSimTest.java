package io.fairlead.task;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.fault.FairleadException;
import java.time.Duration;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * Random trees of tasks of all placements that wait, yield, fail, are cancelled and run late: no
 * two of one turn run at a time, nobody leaves its thread who must not, nothing hangs and nothing
 * is left. On own carriers, and once more on the JDK's.
 */
@Timeout(60)
@SuppressWarnings("ThreadPriorityCheck") // a yield is one more way to suspend
class PlacementSimTest {
  private static final int ROUNDS = 12;
  private static final int DEPTH = 4;
  private static final int STRANDS = 3;

  @SuppressWarnings("serial") // never serialised
  private static final class SimFailure extends RuntimeException {
    SimFailure() {
      super("sim");
    }
  }

  /** A strand, and who must not run beside its members. */
  private record Group(Strand strand, PlacementTest.Guard guard) {}

  private record World(
      TaskRuntime runtime,
      List<Group> groups,
      AtomicInteger alive,
      AtomicReference<@Nullable Throwable> wrong) {

    Thread osThread() {
      return runtime.carriers().mode() == CarrierMode.OWN && Thread.currentThread().isVirtual()
          ? VirtualThreads.carrier()
          : Thread.currentThread();
    }
  }

  /** One task. */
  private final class Node {
    private final World world;
    private final SplittableRandom random;
    private final int depth;
    private final @Nullable Thread home;

    /** Of whose turn it runs; null before it has founded a family. */
    private PlacementTest.@Nullable Guard guard;

    Node(World world, long seed, int depth, PlacementTest.@Nullable Guard guard, boolean stays) {
      this.world = world;
      this.random = new SplittableRandom(seed);
      this.depth = depth;
      this.guard = guard;
      this.home = stays ? world.osThread() : null;
    }

    int run() {
      world.alive.incrementAndGet();
      try {
        for (int steps = random.nextInt(1, 5); steps > 0; steps--) {
          touch();
          step();
          touch();
        }
        return 1;
      } finally {
        world.alive.decrementAndGet();
      }
    }

    private void touch() {
      try {
        if (guard != null) {
          guard.inside();
        }
        if (home != null) {
          assertThat(world.osThread()).isSameAs(home);
        }
      } catch (AssertionError error) {
        world.wrong.compareAndSet(null, error);
      }
    }

    private void step() {
      switch (random.nextInt(depth > 0 ? 10 : 6)) {
        case 0 -> Thread.yield();
        case 1 -> Eventually.suspend();
        case 2 -> LockSupport.parkNanos(random.nextInt(20_000));
        case 3 -> Task.current().checkCancelled();
        case 4 -> {
          if (random.nextInt(12) == 0) {
            throw new SimFailure();
          }
        }
        case 5 -> {}
        default -> children();
      }
    }

    private void children() {
      ScopeOptions options =
          ScopeOptions.of(random.nextBoolean() ? ScopePolicy.COLLECT : ScopePolicy.ALL_SUCCEED);
      try (TaskScope<Integer> scope = world.runtime.scope(options)) {
        for (int count = random.nextInt(1, 5); count > 0; count--) {
          fork(scope);
          if (random.nextInt(3) == 0) {
            touch();
          }
        }
        if (random.nextInt(10) == 0) {
          scope.cancel(null);
        }
        if (random.nextInt(10) != 0) {
          scope.join();
        }
      } catch (SimFailure | FairleadException stopped) {
        touch();
      }
    }

    private void fork(TaskScope<Integer> scope) {
      long seed = random.nextLong();
      ForkOptions options = ForkOptions.DEFAULT;
      if (random.nextInt(8) == 0) {
        options = options.deadline(Duration.ofNanos(random.nextInt(1, 2_000_000)));
      }
      Group group = world.groups.get(random.nextInt(STRANDS));
      switch (random.nextInt(5)) {
        case 0 -> scope.fork(options, child(seed, null, false));
        case 1 -> scope.fork(options.eager(true), child(seed, null, false));
        case 2 -> scope.fork(options.placement(Placement.INITIAL), child(seed, null, true));
        case 3 ->
            scope.fork(
                options.placement(new Placement.Serial(group.strand)),
                child(seed, group.guard, false));
        default -> {
          PlacementTest.Guard family = guard == null ? new PlacementTest.Guard() : guard;
          scope.fork(options.placement(Placement.WITH_PARENT), child(seed, family, false));
          guard = family;
        }
      }
    }

    private TaskBody<Integer> child(
        long seed, PlacementTest.@Nullable Guard itsGuard, boolean stays) {
      return () -> new Node(world, seed, depth - 1, itsGuard, stays).run();
    }
  }

  static Stream<Long> seeds() {
    return Seeds.seeds().boxed();
  }

  @ParameterizedTest(name = "seed {0}")
  @MethodSource("seeds")
  void noTwoOfOneTurnRunAtATime(long seed) {
    SplittableRandom random = new SplittableRandom(seed);
    for (Stealing stealing : Stealing.values()) {
      try (TaskRuntime runtime = TaskRuntime.open(TaskConfig.DEFAULT, stealing)) {
        List<Group> groups =
            Stream.generate(() -> new Group(runtime.strand("sim"), new PlacementTest.Guard()))
                .limit(STRANDS)
                .toList();
        World world = new World(runtime, groups, new AtomicInteger(), new AtomicReference<>());
        for (int round = 0; round < ROUNDS; round++) {
          trees(world, random);
        }
        groups.forEach(group -> Eventually.holds("the turn is given back", group.strand::isFree));
      }
    }
  }

  private void trees(World world, SplittableRandom random) {
    try (TaskScope<Integer> scope =
        world.runtime.scope(
            ScopeOptions.of(ScopePolicy.COLLECT).deadline(Duration.ofSeconds(40)))) {
      for (int i = 0; i < 4; i++) {
        long seed = random.nextLong();
        scope.fork(() -> new Node(world, seed, DEPTH, null, false).run());
      }
      scope.join();
    }
    assertThat(world.wrong.get()).isNull();
    assertThat(world.alive).hasValue(0);
  }
}
