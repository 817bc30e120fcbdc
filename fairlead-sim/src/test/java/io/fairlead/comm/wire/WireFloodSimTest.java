package io.fairlead.comm.wire;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.comm.spi.Traffic;
import io.fairlead.comm.spi.TransportSettings;
import io.fairlead.comm.wire.SimWorld.Asked;
import io.fairlead.fault.Mutant;
import io.fairlead.sim.SimNetwork;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * Floods that nobody receives: what they take at the receiver is bounded by credit, what is waited
 * for gets through, and all of it arrives once it is asked for.
 */
@Timeout(110)
class WireFloodSimTest {
  private static final int FLOOD = 200_000;
  private static final int BYTES = 4_000;
  private static final int TAG = 3;
  private static final int LATER_TAG = 4;
  private static final TransportSettings DEFAULTS = new TransportSettings(2, 4L << 20, 4096);

  private final MemorySegment message = SimWorld.memory(BYTES);
  private final SimWorld world = new SimWorld(1, DEFAULTS, SimNetwork.Settings.QUICK);

  private List<Asked> flood(int count) {
    List<Asked> sends = new ArrayList<>(count);
    for (int i = 0; i < count; i++) {
      sends.add(world.send(0, 1, Traffic.DATA, TAG, message));
    }
    world.settle();
    return sends;
  }

  private static long done(List<Asked> asked) {
    return asked.stream().filter(each -> each.end().isDone()).count();
  }

  @Test
  void aFloodTakesNoMoreThanItsCredit() {
    List<Asked> sends = flood(FLOOD);
    assertThat(world.rank(1).bytesKept())
        .as("bytes kept at the receiver")
        .isBetween(512L << 10, 4L << 20);
    assertThat(done(sends)).as("sends that are over").isBetween(200L, 1_048L);
    for (int i = 0; i < FLOOD; i++) {
      MemorySegment into = SimWorld.memory(i % 1_000 == 0 ? BYTES : 0);
      Asked receive = world.receive(1, 0, Traffic.DATA, TAG, into.byteSize() == 0 ? null : into);
      world.poll(2);
      for (int j = 0; j < 100 && !receive.end().isDone(); j++) {
        world.poll(1);
      }
      assertThat(receive.end().isDone()).as("message %d arrives", i).isTrue();
      assertThat(receive.end().failure).isNull();
    }
    assertThat(done(sends)).isEqualTo(FLOOD);
    assertCreditIsBack();
    assertThat(world.network.violations()).isEmpty();
    world.close();
  }

  private void assertCreditIsBack() {
    world.settle();
    assertThat(world.rank(1).bytesKept()).as("bytes kept when all is received").isZero();
    // The header of any packet brings what an acknowledgement of its own was not worth.
    Asked last = world.receive(0, 1, Traffic.DATA, LATER_TAG, null);
    world.send(1, 0, Traffic.DATA, LATER_TAG, message);
    world.settle();
    assertThat(last.end().isDone()).isTrue();
    assertThat(world.rank(0).creditOut(1)).as("credit that did not come back").isZero();
    for (WireTransport rank : world.ranks) {
      assertThat(rank.counts()).as("what is left: %s", rank).containsOnly(0);
    }
  }

  @Test
  void theTestWouldSeeACreditThatIsNeverGivenBack() {
    try (Mutant.Handle bug = Mutant.enable("wire.keeps-credit")) {
      flood(2_000);
      for (int i = 0; i < 2_000; i++) {
        world.receive(1, 0, Traffic.DATA, TAG, null);
        world.poll(2);
      }
      world.settle();
      world.send(1, 0, Traffic.DATA, LATER_TAG, message);
      world.settle();
      assertThat(bug).isNotNull();
      assertThat(world.rank(0).creditOut(1)).isPositive();
    }
  }

  @Test
  void theTestWouldSeeAFloodWithoutCredit() {
    try (Mutant.Handle bug = Mutant.enable("wire.ignores-credit")) {
      Asked first = flood(2_000).getFirst();
      assertThat(bug).isNotNull();
      // The receiver does not put up with it.
      Asked waiting = world.receive(1, 0, Traffic.DATA, LATER_TAG, null);
      world.settle();
      assertThat(first.end().isDone()).isTrue();
      assertThat(waiting.end().failure).hasMessageContaining("rank 0 sent what cannot be");
    }
  }

  @Test
  void collectivesAndWhatIsWaitedForGetThrough() {
    List<Asked> sends = flood(20_000);
    long before = done(sends);
    for (int i = 0; i < 1_000; i++) {
      MemorySegment into = SimWorld.memory(Long.BYTES);
      MemorySegment from = SimWorld.memory(Long.BYTES);
      from.set(ValueLayout.JAVA_LONG, 0, i);
      Traffic traffic = i % 2 == 0 ? Traffic.COLLECTIVE : Traffic.DATA;
      Asked receive = world.receive(1, 0, traffic, LATER_TAG, into);
      world.send(0, 1, traffic, LATER_TAG, from);
      world.settle();
      assertThat(receive.end().isDone()).as("%s %d behind a flood", traffic, i).isTrue();
      assertThat(into.get(ValueLayout.JAVA_LONG, 0)).isEqualTo(i);
    }
    assertThat(done(sends)).as("the flood is where it was").isEqualTo(before);
    assertThat(world.network.violations()).isEmpty();
  }

  @Test
  void theOtherWayIsOpenDuringAFlood() {
    flood(20_000);
    for (int i = 0; i < 1_000; i++) {
      Asked receive = world.receive(0, 1, Traffic.DATA, LATER_TAG, null);
      world.send(1, 0, Traffic.DATA, LATER_TAG, message);
      world.settle();
      assertThat(receive.end().isDone()).isTrue();
    }
  }
}
