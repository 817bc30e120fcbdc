package io.fairlead.comm;

import static io.fairlead.comm.World.longs;
import static io.fairlead.comm.World.value;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.comm.spi.ThreadLevel;
import io.fairlead.comm.spi.TransportException.Reason;
import io.fairlead.fault.Mutant;
import io.fairlead.task.Completion;
import io.fairlead.task.Owner;
import io.fairlead.task.Role;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** What was sent first is received first, whatever each send has to wait for. */
@Timeout(60)
class SendOrderTest {
  private static final Duration SOON = Duration.ofSeconds(30);
  private static final int SENDS = 8;

  @ParameterizedTest
  @EnumSource(ThreadLevel.class)
  void sendsWithOneTagKeepTheirOrderWhateverOpensFirst(ThreadLevel level) {
    try (World world = GuardedTransport.world(2, level, CommConfig.DEFAULT)) {
      assertThat(receivedAfterOpeningBackwards(world)).isSorted().hasSize(SENDS);
      assertThat(GuardedTransport.violations(world)).isEmpty();
      Eventually.is(0, "places out", () -> world.rank(0).engine().gates.out());
    }
  }

  @Test
  void theMutantThatOvertakesIsFound() {
    try (World world = GuardedTransport.world(2, ThreadLevel.MULTIPLE, CommConfig.DEFAULT);
        Mutant.Handle overtakes = Mutant.enable("comm.gated.overtaken")) {
      assertThat(overtakes).isNotNull();
      List<Long> received = receivedAfterOpeningBackwards(world);
      assertThat(received).isNotEqualTo(received.stream().sorted().toList());
    }
  }

  /** Every other send waits for a gate; the gates open from the last to the first. */
  private static List<Long> receivedAfterOpeningBackwards(World world) {
    Comm comm = world.rank(0);
    List<Completion<?>> sends = new ArrayList<>();
    List<Completion.Source<String>> gates = new ArrayList<>();
    for (int i = 0; i < SENDS; i++) {
      if (i % 2 == 0) {
        gates.add(Completion.source());
        sends.add(comm.send(1, 1, gates.getLast().completion(), Blob.of(longs(i))));
      } else if (i % 4 == 1) {
        sends.add(comm.send(1, 1, longs(i)));
      } else {
        sends.add(comm.send(1, 1, null, Blob.of(longs(i))));
      }
    }
    for (Completion.Source<String> gate : gates.reversed()) {
      gate.complete("open");
    }
    List<Long> received = new ArrayList<>();
    for (int i = 0; i < SENDS; i++) {
      received.add(value(world.rank(1).receive(0, 1).await(SOON).data()));
    }
    sends.forEach(send -> send.await(SOON));
    return received;
  }

  @ParameterizedTest
  @EnumSource(ThreadLevel.class)
  void othersAreNotHeldUp(ThreadLevel level) {
    try (World world = GuardedTransport.world(3, level, CommConfig.DEFAULT)) {
      Comm comm = world.rank(0);
      Completion.Source<String> gate = Completion.source();
      Completion<?> first = comm.send(1, 1, gate.completion(), Blob.of(longs(1)));
      Completion<?> behind = comm.send(1, 1, longs(2));
      comm.send(1, 2, longs(3));
      comm.send(2, 1, longs(4));
      Comm other = comm.duplicate();
      Comm peer = world.rank(1).duplicate();
      other.send(1, 1, longs(5));
      assertThat(value(world.rank(1).receive(0, 2).await(SOON).data())).isEqualTo(3);
      assertThat(value(world.rank(2).receive(0, 1).await(SOON).data())).isEqualTo(4);
      assertThat(value(peer.receive(0, 1).await(SOON).data())).isEqualTo(5);
      assertThat(first.isDone()).isFalse();
      assertThat(behind.isDone()).isFalse();
      gate.complete("open");
      assertThat(value(world.rank(1).receive(0, 1).await(SOON).data())).isEqualTo(1);
      assertThat(value(world.rank(1).receive(0, 1).await(SOON).data())).isEqualTo(2);
    }
  }

  @ParameterizedTest
  @EnumSource(ThreadLevel.class)
  void messagesForOneHandlerKeepTheirOrderAndThoseForOthersGoPast(ThreadLevel level) {
    try (World world = GuardedTransport.world(2, level, CommConfig.DEFAULT)) {
      Comm comm = world.rank(0);
      Queue<Long> handled = new ConcurrentLinkedQueue<>();
      Completion.Source<Long> past = Completion.source();
      world.rank(1).handle(1, (source, header, blobs) -> handled.add(value(header)));
      world.rank(1).handle(2, (source, header, blobs) -> past.complete(value(header)));
      Completion.Source<String> gate = Completion.source();
      Completion<?> first = comm.message(1, 1, gate.completion(), longs(1));
      Completion<?> second = comm.message(1, 1, longs(2));
      comm.message(1, 2, longs(3));
      assertThat(past.completion().await(SOON)).isEqualTo(3);
      assertThat(handled).isEmpty();
      gate.complete("open");
      first.await(SOON);
      second.await(SOON);
      Eventually.is(2, "messages handled", handled::size);
      assertThat(handled).containsExactly(1L, 2L);
    }
  }

  @ParameterizedTest
  @EnumSource(ThreadLevel.class)
  void whatFailsOrIsCancelledHoldsNobodyUp(ThreadLevel level) {
    try (World world = GuardedTransport.world(2, level, CommConfig.DEFAULT)) {
      Comm comm = world.rank(0);
      Completion.Source<String> broken = Completion.source();
      Completion.Source<String> unwanted = Completion.source();
      Completion<?> fails = comm.send(1, 1, broken.completion(), Blob.of(longs(1)));
      Completion<?> cancelled = comm.send(1, 1, unwanted.completion(), Blob.of(longs(2)));
      Completion<?> behind = comm.send(1, 1, longs(3));
      Completion<?> cancelledToo = comm.send(1, 1, longs(4));
      Completion<?> last = comm.send(1, 1, longs(5));
      assertThat(cancelled.cancel()).isTrue();
      assertThat(cancelledToo.cancel()).isTrue();
      assertThat(behind.isDone()).isFalse();
      broken.fail(new IllegalStateException("broken"));
      assertThatThrownBy(() -> fails.await(SOON))
          .isInstanceOfSatisfying(
              CommException.class, e -> assertThat(e.reason()).isEqualTo(Reason.GATE));
      assertThat(value(world.rank(1).receive(0, 1).await(SOON).data())).isEqualTo(3);
      assertThat(value(world.rank(1).receive(0, 1).await(SOON).data())).isEqualTo(5);
      behind.await(SOON);
      last.await(SOON);
      Eventually.is(0, "places out", () -> comm.engine().gates.out());
    }
  }

  @Test
  void aGateThatOpensOnTheLoopLetsNobodyPastWhatWasHandedOver() {
    assertThat(receivedAfterAGateOpenedOnTheLoop()).containsExactly(1L, 2L);
  }

  @Test
  void theMutantThatPassesTheQueueIsFound() {
    try (Mutant.Handle passes = Mutant.enable("comm.gated.passes-the-queue")) {
      assertThat(passes).isNotNull();
      assertThat(receivedAfterAGateOpenedOnTheLoop()).containsExactly(2L, 1L);
    }
  }

  /** The first send is on its way to the loop when the gate of the second opens on the loop. */
  private static List<Long> receivedAfterAGateOpenedOnTheLoop() {
    try (World world = GuardedTransport.world(2, ThreadLevel.FUNNELED, CommConfig.DEFAULT)) {
      Comm comm = world.rank(0);
      Completion.Source<String> begun = Completion.source();
      Completion.Source<String> sent = Completion.source();
      Completion.Source<String> gate = Completion.source();
      Runnable opens =
          () -> {
            begun.complete("the loop is busy");
            while (!sent.completion().isDone()) {
              Thread.onSpinWait();
            }
            gate.complete("open");
          };
      comm.engine().loop().push(new CommEngine.Callback(opens));
      begun.completion().await(SOON);
      comm.send(1, 1, longs(1));
      comm.send(1, 1, gate.completion(), Blob.of(longs(2)));
      sent.complete("both");
      List<Long> received = new ArrayList<>();
      for (int i = 0; i < 2; i++) {
        received.add(value(world.rank(1).receive(0, 1).await(SOON).data()));
      }
      return received;
    }
  }

  @Test
  void aManagerThatWouldHaveToWaitForAPlaceIsRefused() {
    try (World world = new World(2, CommConfig.DEFAULT.withSlots(1, 10))) {
      Comm comm = world.rank(0);
      Completion.Source<String> gate = Completion.source();
      comm.send(1, 1, gate.completion(), Blob.of(longs(1)));
      Owner manager = world.tasks.owner("manager", Role.DEVICE_MANAGER);
      Completion<?> refused = manager.call(() -> comm.send(1, 1, longs(2))).await(SOON);
      assertThatThrownBy(() -> refused.await(SOON))
          .isInstanceOfSatisfying(
              CommException.class, e -> assertThat(e.reason()).isEqualTo(Reason.BACK_PRESSURE));
      gate.complete("open");
      assertThat(value(world.rank(1).receive(0, 1).await(SOON).data())).isEqualTo(1);
    }
  }

  @Test
  void closingFailsWhatStandsBehindAGate() {
    World world = new World(2);
    Completion.Source<String> gate = Completion.source();
    Completion<?> first = world.rank(0).send(1, 1, gate.completion(), Blob.of(longs(1)));
    Completion<?> behind = world.rank(0).send(1, 1, longs(2));
    world.close();
    for (Completion<?> send : List.of(first, behind)) {
      assertThatThrownBy(() -> send.await(SOON))
          .isInstanceOfSatisfying(
              CommException.class, e -> assertThat(e.reason()).isEqualTo(Reason.CLOSED));
    }
    gate.complete("too late");
    assertThat(world.rank(0).engine().gates.out()).isZero();
  }
}
