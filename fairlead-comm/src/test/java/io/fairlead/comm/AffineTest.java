package io.fairlead.comm;

import static io.fairlead.comm.World.bytes;
import static io.fairlead.comm.World.longs;
import static io.fairlead.comm.World.memory;
import static io.fairlead.comm.World.value;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.comm.spi.ThreadLevel;
import io.fairlead.fault.TaskCancelledException;
import io.fairlead.task.CarrierMode;
import io.fairlead.task.Completion;
import io.fairlead.task.Role;
import io.fairlead.task.TaskConfig;
import io.fairlead.task.TaskRuntime;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.DisabledIfSystemProperty;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Tasks on the communication thread's own loop (row 004.1). */
@Timeout(60)
@DisabledIfSystemProperty(
    named = "fairlead.test.closed",
    matches = "true",
    disabledReason = "there are no own carriers where the package is closed")
class AffineTest {
  private static final Duration SOON = Duration.ofSeconds(30);

  @ParameterizedTest
  @EnumSource(ThreadLevel.class)
  void itEntersTheTransportItselfAtEveryLevel(ThreadLevel level) {
    try (World world = world(level, false)) {
      List<Completion<String>> rings = new ArrayList<>();
      for (Comm comm : world.ranks) {
        rings.add(comm.affine(() -> exchange(comm, 500)));
      }
      rings.forEach(ring -> ring.await(SOON));
      for (Comm comm : world.ranks) {
        assertThat(comm.stats().shifted()).as("calls handed over").isZero();
        assertThat(comm.stats().sent()).isGreaterThanOrEqualTo(500);
      }
      assertThat(GuardedTransport.violations(world)).isEmpty();
    }
  }

  private static String exchange(Comm comm, int rounds) {
    assertThat(Role.current()).isEqualTo(Role.TASK);
    assertThat(Thread.currentThread().isVirtual()).isTrue();
    int peer = 1 - comm.rank();
    for (int i = 0; i < rounds; i++) {
      Completion<Received> received = comm.receive(peer, 1);
      comm.send(peer, 1, longs(i)).await();
      assertThat(value(received.await().data())).isEqualTo(i);
    }
    double[] sum = {1};
    comm.allReduce(sum, ReduceOp.SUM).await();
    assertThat(sum[0]).isEqualTo(2);
    return "done";
  }

  @Test
  void handlersAndShiftedCallsGoOnWhileItWaits() {
    try (World world = world(ThreadLevel.FUNNELED, true)) {
      Comm comm = world.rank(0);
      Completion<Received> waits = comm.affine(() -> comm.receive(1, 1).await());
      Completion.Source<Long> handled = Completion.source();
      comm.handle(1, (source, header, blobs) -> handled.complete(value(header)));
      world.rank(1).message(0, 1, longs(3)).await(SOON);
      assertThat(handled.completion().await(SOON)).isEqualTo(3);
      comm.send(1, 2, bytes(10, 1)).await(SOON); // shifted: this thread is not its own
      assertThat(waits.isDone()).isFalse();
      world.rank(1).send(0, 1, longs(4)).await(SOON);
      assertThat(value(waits.await(SOON).data())).isEqualTo(4);
      assertThat(comm.stats().shifted()).isPositive();
      assertThat(GuardedTransport.violations(world)).isEmpty();
    }
  }

  @Test
  void manyOfThemShareTheThread() {
    int tasks = 64;
    try (World world = world(ThreadLevel.FUNNELED, true)) {
      List<Completion<Long>> all = new ArrayList<>();
      for (Comm comm : world.ranks) {
        for (int t = 0; t < tasks; t++) {
          int tag = t;
          all.add(comm.affine(() -> sum(comm, tag)));
        }
      }
      for (Completion<Long> one : all) {
        assertThat(one.await(SOON)).isEqualTo(50 * 49 / 2);
      }
      assertThat(GuardedTransport.violations(world)).isEmpty();
      assertThat(world.rank(0).stats().shifted()).isZero();
    }
  }

  private static long sum(Comm comm, int tag) {
    long sum = 0;
    for (int i = 0; i < 50; i++) {
      Completion<Received> received = comm.receive(1 - comm.rank(), tag);
      comm.send(1 - comm.rank(), tag, longs(i)).await();
      sum += value(received.await().data());
    }
    return sum;
  }

  @Test
  void closingEndsWhatItWaitsFor() {
    World world = world(ThreadLevel.FUNNELED, true);
    Comm comm = world.rank(0);
    Completion<Received> waits = comm.affine(() -> comm.receive(1, 1).await());
    Completion<String> closes =
        world
            .rank(1)
            .affine(
                () -> {
                  world.rank(1).close(); // by a task on the very thread that is to end
                  return "closed";
                });
    assertThat(closes.await(SOON)).isEqualTo("closed");
    world.close();
    assertThatThrownBy(() -> waits.await(SOON)).isInstanceOf(CommException.class);
    assertThatThrownBy(() -> comm.affine(() -> 1))
        .isInstanceOf(IllegalStateException.class)
        .hasMessageContaining("closed the communicator");
    assertThat(GuardedTransport.violations(world)).isEmpty();
  }

  @Test
  void cancellingItCancelsTheTask() throws InterruptedException {
    try (World world = world(ThreadLevel.FUNNELED, false)) {
      Comm comm = world.rank(0);
      CountDownLatch begun = new CountDownLatch(1);
      Completion.Source<Throwable> seen = Completion.source();
      Completion<String> task =
          comm.affine(
              () -> {
                begun.countDown();
                try {
                  comm.receive(1, 1).await();
                } catch (TaskCancelledException e) {
                  seen.complete(e);
                }
                return "ended";
              });
      begun.await();
      assertThat(task.cancel()).isTrue();
      assertThat(seen.completion().await(SOON)).isInstanceOf(TaskCancelledException.class);
    }
  }

  @Test
  void whatHoldsTheThreadUpIsCounted() {
    try (World world = new World(2)) {
      Comm comm = world.rank(0);
      comm.affine(AffineTest::computeTooLong).await(SOON);
      Eventually.is(1, "long turns of tasks", () -> comm.stats().longTurns());
      comm.handle(1, (source, header, blobs) -> computeTooLong());
      world.rank(1).message(0, 1, memory(0)).await(SOON);
      Eventually.is(2, "with those of handlers", () -> comm.stats().longTurns());
      assertThat(comm.stats().longestTurnNanos()).isGreaterThanOrEqualTo(Counters.LONG_TURN_NANOS);
    }
  }

  private static int computeTooLong() {
    long end = System.nanoTime() + Counters.LONG_TURN_NANOS;
    while (System.nanoTime() - end < 0) {
      Thread.onSpinWait();
    }
    return 1;
  }

  @Test
  void onTheJdksCarriersItIsRefusedWithTheFlagToPass() {
    TaskRuntime jdk = TaskRuntime.open(TaskConfig.DEFAULT.carriers(CarrierMode.JDK));
    try (World world =
        GuardedTransport.world(jdk, 1, ThreadLevel.FUNNELED, CommConfig.DEFAULT, true)) {
      assertThatThrownBy(() -> world.rank(0).affine(() -> 1))
          .isInstanceOf(IllegalStateException.class)
          .hasMessageContaining("--add-opens java.base/java.lang=");
    }
  }

  private static World world(ThreadLevel level, boolean polled) {
    TaskRuntime own = TaskRuntime.open(TaskConfig.DEFAULT.carriers(CarrierMode.OWN));
    return GuardedTransport.world(own, 2, level, CommConfig.DEFAULT, polled);
  }
}
