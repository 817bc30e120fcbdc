package io.fairlead.comm.wire;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.comm.spi.MessageRequest;
import io.fairlead.comm.spi.Segments;
import io.fairlead.comm.spi.Traffic;
import io.fairlead.comm.spi.TransportException;
import io.fairlead.comm.spi.TransportSettings;
import io.fairlead.comm.wire.SimWorld.Asked;
import io.fairlead.sim.SimNetwork;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * What waits for credit, for a receive or a message, and is cancelled leaves nothing at any rank.
 */
class WireNothingLeftTest {
  private static final int MANY = 500;

  private SimWorld world(int eagerMessages) {
    SimWorld made =
        new SimWorld(
            1, new TransportSettings(2, 1 << 20, eagerMessages), SimNetwork.Settings.QUICK);
    made.poll(10); // the greetings
    return made;
  }

  private static void nothingLeft(SimWorld world) {
    world.settle();
    for (WireTransport rank : world.ranks) {
      assertThat(rank.counts()).as("what is left: %s", rank).containsOnly(0);
      assertThat(rank.bytesKept()).isZero();
      assertThat(rank.creditOut(1 - rank.rank())).isZero();
    }
    world.close();
  }

  @Test
  void receivesThatNobodySendsTo() {
    SimWorld world = world(64);
    for (int i = 0; i < MANY; i++) {
      Asked received = world.receive(1, i % 3 - 1, Traffic.DATA, i, SimWorld.memory(8));
      world.poll(i % 3);
      assertThat(world.rank(1).cancel(received.request())).isTrue();
    }
    nothingLeft(world);
  }

  @ParameterizedTest
  @ValueSource(longs = {8, 100_000})
  void sendsThatHaveNoCredit(long bytes) {
    SimWorld world = world(0);
    int withdrawn = 0;
    for (int i = 0; i < MANY; i++) {
      Asked sent = world.send(0, 1, Traffic.DATA, i % 7, SimWorld.memory(bytes));
      world.poll(i % 3);
      withdrawn += world.rank(0).cancel(sent.request()) ? 1 : 0;
      world.poll(i % 2);
    }
    assertThat(withdrawn).isPositive();
    nothingLeft(world);
  }

  /** Those that went while there was credit lie with the receiver, and come to its listener. */
  @ParameterizedTest
  @ValueSource(ints = {0, 8})
  void messagesThatNobodyListensTo(int eagerMessages) {
    SimWorld world = world(eagerMessages);
    int went = 0;
    for (int i = 0; i < MANY; i++) {
      Message message = new Message(i % 7);
      world.rank(0).message(message);
      world.poll(i % 3);
      went += world.rank(0).cancel(message) ? 0 : 1;
    }
    assertThat(went).isLessThanOrEqualTo(eagerMessages);
    world.settle();
    assertThat(world.rank(0).counts()).as("at the sender").containsExactly(0, went, 0, 0);
    assertThat(world.rank(1).arrived()).as("at the receiver").isEqualTo(went);
    world.close();
  }

  private static final class Message extends MessageRequest {
    Message(int handler) {
      super(0, 1, handler, SimWorld.memory(8), Segments.NONE);
    }

    @Override
    public boolean isWithdrawn() {
      return false;
    }

    @Override
    public void sent() {}

    @Override
    public void failed(TransportException cause) {}
  }
}
