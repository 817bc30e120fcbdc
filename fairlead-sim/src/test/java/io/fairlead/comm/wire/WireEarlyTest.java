package io.fairlead.comm.wire;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.comm.spi.Traffic;
import io.fairlead.comm.spi.TransportSettings;
import io.fairlead.comm.wire.SimWorld.Asked;
import io.fairlead.sim.SimNetwork;
import java.lang.foreign.MemorySegment;
import org.junit.jupiter.api.Test;

/** Long messages that come before their receives: once copied if that is a moment late. */
class WireEarlyTest {
  private static final int BYTES = 1 << 20;
  private static final int TAG = 3;

  private final SimWorld world =
      new SimWorld(1, new TransportSettings(2, 4L << 20, 64), SimNetwork.Settings.QUICK);

  private Asked send() {
    world.poll(10); // the greetings
    return world.send(0, 1, Traffic.DATA, TAG, SimWorld.memory(BYTES));
  }

  @Test
  void aReceiveThatIsAMomentLateHasItsMessageCopiedOnce() {
    Asked sent = send();
    world.poll(Intake.POLLS_BEFORE_EARLY / 2);
    assertThat(world.rank(1).bytesKept()).as("no block was taken").isZero();
    assertThat(sent.end().isDone()).isFalse();
    MemorySegment into = SimWorld.memory(BYTES);
    Asked received = world.receive(1, 0, Traffic.DATA, TAG, into);
    assertThat(world.rank(1).bytesKept()).isZero();
    world.poll(20);
    assertThat(received.end().isDone()).isTrue();
    assertThat(sent.end().isDone()).isTrue();
    world.poll(2 * Intake.POLLS_BEFORE_EARLY);
    assertThat(world.rank(1).bytesKept()).as("it is not taken again").isZero();
    world.close();
  }

  @Test
  void whatNobodyReceivesIsTakenAllTheSameAndItsSenderIsTold() {
    Asked sent = send();
    world.poll(Intake.POLLS_BEFORE_EARLY + 20);
    assertThat(sent.end().isDone()).isTrue();
    assertThat(sent.end().failure).isNull();
    assertThat(world.rank(1).bytesKept()).isEqualTo(BYTES);
    world.close();
  }

  @Test
  void whatWasWithdrawnMeanwhileIsNotTaken() {
    Asked sent = send();
    world.poll(2);
    assertThat(world.ranks.getFirst().cancel(sent.request())).isTrue();
    world.poll(2 * Intake.POLLS_BEFORE_EARLY);
    assertThat(world.rank(1).bytesKept()).isZero();
    assertThat(world.rank(1).counts()).containsOnly(0);
    world.close();
  }
}
