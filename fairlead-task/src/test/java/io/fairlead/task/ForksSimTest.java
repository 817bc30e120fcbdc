package io.fairlead.task;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatExceptionOfType;

import io.fairlead.fault.Mutant;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * Random trees of frames and scopes, some of which wait, some of which fail: they give what plain
 * calls give, whoever runs what, and leave nothing behind. Runners take at first sight here, so
 * that they meet owners at every step.
 */
@Timeout(120)
class ForksSimTest {
  private static final int ROUNDS = 30;
  private static final int DEPTH = 5;

  private record Node(long seed, int depth, boolean mayFail) {
    SplittableRandom random() {
      return new SplittableRandom(seed);
    }

    Node child(SplittableRandom random) {
      return new Node(random.nextLong(), depth - 1, mayFail);
    }
  }

  @SuppressWarnings("serial") // never serialised
  private static final class SimFailure extends RuntimeException {
    SimFailure() {
      super("sim");
    }
  }

  /** One world: a runtime, and how many bodies are in it at the moment. */
  private record World(TaskRuntime runtime, AtomicInteger alive) {}

  @ParameterizedTest(name = "seed {0}")
  @MethodSource("io.fairlead.task.Seeds#seeds")
  void treesGiveWhatCallsGive(long seed) {
    for (Stealing stealing : Stealing.values()) {
      trees(seed, stealing);
    }
    try (Mutant.Handle _ = Mutant.enable("forks.no-throttle")) {
      trees(seed, Stealing.MIXED);
    }
  }

  private static void trees(long seed, Stealing stealing) {
    SplittableRandom random = new SplittableRandom(seed);
    try (TaskRuntime runtime = TaskRuntime.open(TaskConfig.DEFAULT, stealing)) {
      World world = new World(runtime, new AtomicInteger());
      for (int round = 0; round < ROUNDS; round++) {
        String where = "seed " + seed + " round " + round + " " + stealing;
        Node root = new Node(random.nextLong(), DEPTH, random.nextInt(4) == 0);
        check(where, world, root);
        assertThat(world.alive).as(where).hasValue(0);
      }
    }
  }

  private static void check(String where, World world, Node root) {
    long expected;
    try {
      expected = called(root);
    } catch (SimFailure e) {
      assertThatExceptionOfType(SimFailure.class).as(where).isThrownBy(() -> forked(world, root));
      return;
    }
    assertThat(forked(world, root)).as(where).isEqualTo(expected);
  }

  private static long forked(World world, Node root) {
    return world.runtime.<Long>enter(
        "sim",
        0,
        () -> {
          try (TaskScope<Long> scope = world.runtime.scope()) {
            long value =
                scope.forkJoin(
                    (forks, _) -> {
                      long sum = framed(world, forks, root);
                      assertThat(forks.holdsFrames()).isFalse();
                      return sum;
                    },
                    0);
            scope.join();
            return value;
          }
        });
  }

  /** What the tree is worth, by plain calls. */
  private static long called(Node node) {
    SplittableRandom random = node.random();
    long value = own(node, random);
    int children = node.depth == 0 ? 0 : random.nextInt(4);
    for (int i = 0; i < children; i++) {
      value += called(node.child(random));
    }
    return value;
  }

  private static long own(Node node, SplittableRandom random) {
    int dice = random.nextInt(200);
    if (node.mayFail && dice == 0) {
      throw new SimFailure();
    }
    if (dice % 50 == 1) {
      Completion.Source<Long> source = Completion.source();
      Thread.ofVirtual().start(() -> source.complete(1L));
      return source.completion().await();
    }
    return dice % 50 == 2 ? 1 : dice;
  }

  private static long framed(World world, Forks forks, Node node) {
    world.alive.incrementAndGet();
    try {
      SplittableRandom random = node.random();
      long value = own(node, random);
      int children = node.depth == 0 ? 0 : random.nextInt(4);
      List<ObjectFrame<Long>> frames = new ArrayList<>();
      List<Node> nodes = new ArrayList<>();
      for (int i = 0; i < children; i++) {
        nodes.add(node.child(random));
      }
      boolean scoped = node.seed % 5 == 0;
      if (scoped) {
        return value + scoped(world, nodes);
      }
      for (Node child : nodes) {
        frames.add(forks.fork((f, n) -> framed(world, f, n), child));
      }
      for (ObjectFrame<Long> frame : frames.reversed()) {
        value += forks.join(frame);
      }
      return value;
    } finally {
      world.alive.decrementAndGet();
    }
  }

  private static long scoped(World world, List<Node> nodes) {
    try (TaskScope<Long> scope = world.runtime.scope()) {
      for (Node child : nodes) {
        scope.fork(
            () -> {
              try (TaskScope<Long> inner = world.runtime.scope()) {
                return inner.forkJoin((forks, _) -> framed(world, forks, child), 0);
              }
            });
      }
      return scope.join().stream().mapToLong(Long::longValue).sum();
    }
  }
}
