package io.fairlead.comm;

import static io.fairlead.comm.World.longs;
import static io.fairlead.comm.World.memory;
import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.comm.spi.ThreadLevel;
import io.fairlead.task.Completion;
import io.fairlead.task.TaskConfig;
import io.fairlead.task.TaskRuntime;
import java.lang.reflect.Method;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.function.IntFunction;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * What waits, for a gate, for room or for a handler, and is cancelled leaves nothing where it
 * waited, though that never comes. Counted in nodes: so few of many may be left.
 */
@Timeout(120)
class NothingLeftTest {
  private static final Duration SOON = Duration.ofSeconds(30);
  private static final int MANY = 2_000;

  /** As many as garbage may lie at one place before it is swept; half of {@link Completion}'s. */
  private static final int FEW = 130;

  private static int linked(Completion<?> gate) {
    try {
      Method linked = Completion.class.getDeclaredMethod("linked");
      linked.setAccessible(true);
      return (int) linked.invoke(gate);
    } catch (ReflectiveOperationException e) {
      throw new LinkageError("no count of what hangs on a completion", e);
    }
  }

  private static void cancelMany(IntFunction<Completion<?>> send) {
    for (int i = 0; i < MANY; i++) {
      assertThat(send.apply(i).cancel()).as("cancelled").isTrue();
    }
  }

  private static World world(ThreadLevel level, CommConfig config) {
    return GuardedTransport.world(TaskRuntime.open(TaskConfig.DEFAULT), 2, level, config, false);
  }

  // --- at a gate --------------------------------------------------------------------------------

  @ParameterizedTest
  @EnumSource(ThreadLevel.class)
  void aGateThatNeverOpens(ThreadLevel level) {
    try (World world = world(level, CommConfig.DEFAULT.withSlots(16, 16))) {
      Comm comm = world.rank(0);
      Completion<?> gate = Completion.source().completion();
      Window window = world.rank(1).expose(memory(8)).await(SOON);
      cancelMany(i -> comm.send(1, 1, gate, Blob.of(longs(i))));
      cancelMany(i -> comm.message(1, 1, gate, longs(i)));
      cancelMany(i -> comm.put(1, window.key(), 0, gate, Blob.of(longs(i))));
      assertThat(linked(gate)).as("nodes at the gate").isLessThan(FEW);
      letGo(comm);
    }
  }

  /** The first of a line stays, and what comes and goes behind it leaves nothing. */
  @ParameterizedTest
  @EnumSource(ThreadLevel.class)
  void behindAnotherThatWaits(ThreadLevel level) {
    try (World world = world(level, CommConfig.DEFAULT.withSlots(16, 16))) {
      Comm comm = world.rank(0);
      Completion.Source<String> gate = Completion.source();
      Completion<?> never = Completion.source().completion();
      Completion<?> first = comm.send(1, 1, gate.completion(), Blob.of(longs(1)));
      Completion<?> firstMessage = comm.message(1, 1, gate.completion(), longs(1));
      cancelMany(i -> comm.send(1, 1, longs(i)));
      cancelMany(i -> comm.send(1, 1, never, Blob.of(longs(i))));
      cancelMany(i -> comm.message(1, 1, longs(i)));
      cancelMany(i -> comm.message(1, 1, never, longs(i)));
      assertThat(comm.gatedSends().lined()).as("in lines").isEqualTo(2);
      assertThat(linked(never)).as("nodes at the gate").isLessThan(FEW);
      Completion<?> last = comm.send(1, 1, longs(2));
      world.rank(1).handle(1, (source, header, blobs) -> {});
      gate.complete("open");
      first.await(SOON);
      firstMessage.await(SOON);
      last.await(SOON);
      assertThat(World.value(world.rank(1).receive(0, 1).await(SOON).data())).isEqualTo(1);
      assertThat(World.value(world.rank(1).receive(0, 1).await(SOON).data())).isEqualTo(2);
      letGo(comm);
    }
  }

  @Test
  void gatesThatFailBehindAnotherThatWaits() {
    try (World world = new World(2, CommConfig.DEFAULT.withSlots(16, 16))) {
      Comm comm = world.rank(0);
      Completion<?> first = comm.send(1, 1, Completion.source().completion(), Blob.of(longs(1)));
      for (int i = 0; i < MANY; i++) {
        Completion.Source<String> gate = Completion.source();
        Completion<?> send = comm.send(1, 1, gate.completion(), Blob.of(longs(i)));
        gate.fail(new IllegalStateException("on purpose"));
        assertThat(send.cause()).hasMessageContaining("not sent");
      }
      assertThat(comm.gatedSends().lined()).as("in lines").isEqualTo(1);
      first.cancel();
      letGo(comm);
    }
  }

  @Test
  void aGateThatNeverOpensForACommunicatorThatCloses() {
    Completion<?> gate = Completion.source().completion();
    try (World world = new World(2)) {
      Comm comm = world.rank(0);
      for (int i = 0; i < MANY; i++) {
        comm.send(1, i % 7, gate, Blob.of(longs(i)));
      }
    }
    assertThat(linked(gate)).as("nodes at the gate").isLessThan(FEW);
  }

  private static void letGo(Comm comm) {
    Eventually.is(0, "sends that wait", () -> comm.gatedSends().count());
    Eventually.is(0, "in lines", () -> comm.gatedSends().lined());
    Eventually.is(0, "places", () -> comm.engine().gates.out());
  }

  // --- for room, or for a handler ---------------------------------------------------------------

  @ParameterizedTest
  @EnumSource(ThreadLevel.class)
  void messagesThatNoHandlerTakes(ThreadLevel level) {
    try (World world = world(level, CommConfig.DEFAULT.withMessageBytes(8))) {
      Completion<?> taken = world.rank(0).message(1, 1, longs(0));
      taken.await(SOON);
      cancelMany(i -> world.rank(0).message(1, 1, longs(i)));
      assertThat(world.rank(1).inflow().length()).as("messages").isLessThan(FEW);
      // Where calls are handed over, the last of those cancels may still be on their way to the
      // loop.
      world.rank(0).send(0, 1, longs(1)).await(SOON);
      List<Long> handled = new ArrayList<>();
      Completion<?> last = world.rank(0).message(1, 1, longs(-1));
      world.rank(1).handle(1, (source, header, blobs) -> handled.add(World.value(header)));
      last.await(SOON);
      Eventually.is(2, "handled", () -> (int) world.rank(1).stats().handled());
      assertThat(handled).containsExactly(0L, -1L);
      Eventually.is(0, "messages", () -> world.rank(1).inflow().length());
    }
  }
}
