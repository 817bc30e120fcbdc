package io.fairlead.comm.wire;

import static java.util.Objects.requireNonNull;
import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.comm.spi.Traffic;
import io.fairlead.comm.spi.TransportException;
import io.fairlead.comm.spi.TransportException.Reason;
import io.fairlead.comm.spi.TransportSettings;
import io.fairlead.comm.wire.SimWorld.Asked;
import io.fairlead.fault.Mutant;
import io.fairlead.sim.SimNetwork;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Which sends go in short form, and that those which do are received as if they did not. */
@Timeout(60)
class WireShortTest {
  private static final TransportSettings ROOM = new TransportSettings(2, 1 << 20, 4096);
  private static final int BYTES = 8;

  /** A number that tells which message it was. */
  private static final ValueLayout.OfLong NUMBER = ValueLayout.JAVA_LONG;

  private final List<Integer> lengths = new ArrayList<>();
  private int acknowledgements;

  private SimWorld world(TransportSettings settings, SimNetwork.Settings how) {
    SimWorld world = new SimWorld(1, settings, how);
    world.poll(50);
    world.network.tamper(
        (source, target, memory, bytes) -> {
          if (memory.get(ValueLayout.JAVA_BYTE, 0) == Kind.ACK.number) {
            acknowledgements++;
          } else {
            lengths.add(bytes);
          }
          return bytes;
        });
    return world;
  }

  private SimWorld world() {
    return world(ROOM, SimNetwork.Settings.QUICK);
  }

  private static MemorySegment numbered(long number) {
    MemorySegment memory = SimWorld.memory(BYTES);
    memory.set(NUMBER, 0, number);
    return memory;
  }

  private static void assertWell(Asked asked) {
    assertThat(asked.end().times).isEqualTo(1);
    assertThat(asked.end().failure).isNull();
  }

  /** Sends a number and receives it. */
  private static void exchange(SimWorld world, int source, Traffic traffic, int tag, long number) {
    MemorySegment into = SimWorld.memory(BYTES);
    Asked receive = world.receive(1 - source, source, traffic, tag, into);
    assertWell(world.send(source, 1 - source, traffic, tag, numbered(number)));
    world.settle();
    assertWell(receive);
    assertThat(into.get(NUMBER, 0)).isEqualTo(number);
  }

  @Test
  void theSecondSendOfARouteTakesTenBytes() {
    SimWorld world = world();
    for (int i = 0; i < 3; i++) {
      exchange(world, 0, Traffic.DATA, 5, i);
    }
    assertThat(lengths).containsExactly(48, 10, 10);
    world.close();
  }

  @Test
  void theTestsWouldSeeARouteThatIsForgotten() {
    try (Mutant.Handle bug = Mutant.enable("wire.forgets-route")) {
      assertThat(bug).isNotNull();
      SimWorld world = world();
      exchange(world, 0, Traffic.DATA, 5, 1);
      Asked receive = world.receive(1, 0, Traffic.DATA, 5, SimWorld.memory(BYTES));
      world.send(0, 1, Traffic.DATA, 5, numbered(2));
      world.settle();
      assertThat(receive.end().failure).hasMessageContaining("which it never spoke");
      world.close();
    }
  }

  @Test
  void eachDirectionSpeaksItsOwnRoutes() {
    SimWorld world = world();
    for (int i = 0; i < 4; i++) {
      exchange(world, i % 2, Traffic.DATA, 5, i);
    }
    assertThat(lengths).containsExactly(48, 48, 10, 10);
    world.close();
  }

  @Test
  void routesOfOnePlacePutEachOtherOut() {
    SimWorld world = world();
    int[] tags = {5, 5 + Routes.COUNT, 5, 5, 5 + 7 * Routes.COUNT, 5};
    for (int tag : tags) {
      assertThat(Routes.number(Frame.lane(0, tag))).isEqualTo(Routes.number(Frame.lane(0, 5)));
      exchange(world, 0, Traffic.DATA, tag, tag);
    }
    assertThat(lengths).containsExactly(48, 48, 48, 10, 48, 48);
    world.close();
  }

  @Test
  void asManyTagsAsThereArePlacesPutNobodyOut() {
    SimWorld world = world();
    for (int round = 0; round < 2; round++) {
      lengths.clear();
      for (int tag = 0; tag < Routes.COUNT; tag++) {
        exchange(world, 0, Traffic.DATA, tag, tag);
      }
    }
    // All but those that say what came.
    assertThat(lengths.stream().filter(length -> length == 10).count()).isGreaterThan(200);
    world.close();
  }

  @Test
  void collectivesPutNobodyOut() {
    SimWorld world = world();
    exchange(world, 0, Traffic.DATA, 5, 1);
    exchange(world, 0, Traffic.COLLECTIVE, 5, 2);
    exchange(world, 0, Traffic.COLLECTIVE, 5 + Routes.COUNT, 3);
    exchange(world, 0, Traffic.DATA, 5, 4);
    assertThat(lengths).containsExactly(48, 48, 48, 10);
    world.close();
  }

  @Test
  void aSteadyExchangeNeedsNoAcknowledgements() {
    SimWorld world = world(ROOM, SimNetwork.Settings.QUICK);
    for (int i = 0; i < 5_000; i++) {
      exchange(world, i % 2, Traffic.DATA, 5, i);
    }
    long brief = lengths.stream().filter(length -> length == 10).count();
    assertThat(lengths).hasSize(5_000);
    assertThat(acknowledgements).isZero();
    assertThat(brief).isGreaterThan(3_000);
    world.close();
    assertThat(world.network.violations()).isEmpty();
  }

  @Test
  void aStreamInOneDirectionIsAcknowledgedAsItGoes() {
    SimWorld world = world(new TransportSettings(2, 1 << 12, 20), SimNetwork.Settings.QUICK);
    SplittableRandom random = new SplittableRandom(1);
    for (int i = 0; i < 3_000; i++) {
      exchange(world, 0, Traffic.DATA, random.nextInt(3), i);
    }
    assertThat(acknowledgements).isPositive();
    assertThat(world.rank(0).creditOut(1)).isLessThan(20);
    world.close();
    assertThat(world.network.violations()).isEmpty();
  }

  /** Everything at once: what waits for credit goes in full, and nothing overtakes. */
  @Test
  void streamsBothWaysWithLittleCreditKeepTheirOrder() {
    for (int messages : new int[] {0, 1, 2, 3, 8, 40}) {
      SimWorld world =
          world(new TransportSettings(2, 1 << 12, messages), SimNetwork.Settings.QUICK);
      List<MemorySegment> places = new ArrayList<>();
      List<Asked> asked = new ArrayList<>();
      for (int i = 0; i < 400; i++) {
        for (int source = 0; source < 2; source++) {
          asked.add(world.send(source, 1 - source, Traffic.DATA, 5, numbered(i)));
        }
        world.poll(i % 3);
      }
      for (int i = 0; i < 800; i++) {
        places.add(SimWorld.memory(BYTES));
        asked.add(world.receive(i % 2, 1 - i % 2, Traffic.DATA, 5, places.get(i)));
      }
      world.settle();
      asked.forEach(WireShortTest::assertWell);
      for (int i = 0; i < 800; i++) {
        assertThat(places.get(i).get(NUMBER, 0)).isEqualTo(i / 2);
      }
      world.close();
      assertThat(world.network.violations()).isEmpty();
    }
  }

  @Test
  void memoryThatCannotBeReadIsSaidInFull() {
    SimWorld world = world();
    exchange(world, 0, Traffic.DATA, 5, 1);
    Asked receive = world.receive(1, 0, Traffic.DATA, 5, SimWorld.memory(BYTES));
    MemorySegment closed;
    try (Arena arena = Arena.ofShared()) {
      closed = arena.allocate(BYTES, BYTES);
    }
    Asked send = world.send(0, 1, Traffic.DATA, 5, closed);
    world.settle();
    assertMemory(send.end().failure);
    assertMemory(receive.end().failure);
    exchange(world, 0, Traffic.DATA, 5, 2);
    assertThat(lengths.get(0)).isEqualTo(48);
    assertThat(lengths.get(1)).isGreaterThan(48);
    assertThat(lengths.get(2)).isEqualTo(10);
    world.close();
  }

  private static void assertMemory(@Nullable TransportException failure) {
    assertThat(failure).isNotNull();
    assertThat(failure.reason()).isEqualTo(Reason.MEMORY);
  }

  @Test
  void whoSendsMoreThanTheWindowHasRoomForIsNoticed() {
    assertThat(endAfterShorts(6)).isNull();
    assertThat(endAfterShorts(7)).hasMessageContaining("rank 0 sent what cannot be: more packets");
  }

  /** What a receive ends with after a greeting, a send in full and so many short ones, at once. */
  private static @Nullable TransportException endAfterShorts(int shorts) {
    SimNetwork.Settings narrow = SimNetwork.Settings.QUICK.withWant(512, 64, 1_000, 0);
    SimNetwork network = new SimNetwork(1, 2, narrow);
    WireTransport honest = new WireTransport(network.wire(1), ROOM);
    Peer liar = new Rank(network.wire(0), ROOM).peers[1];
    liar.control(Kind.HELLO, 0, 0, 0, 0, 0);
    honest.poll();
    honest.poll();
    Packet full = requireNonNull(network.wire(0).take());
    Frame.lane(full.memory(), 0, 5);
    Frame.bytes(full.memory(), BYTES, -1);
    liar.go(full, Kind.EAGER, 0, BYTES);
    for (int i = 0; i < shorts; i++) {
      Packet packet = requireNonNull(network.wire(0).take());
      liar.goShort(packet, Routes.number(Frame.lane(0, 5)), BYTES);
    }
    honest.poll();
    return SimWorld.receive(honest, 0, Traffic.DATA, 6, null).end().failure;
  }
}
