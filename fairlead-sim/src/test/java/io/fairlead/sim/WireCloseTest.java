package io.fairlead.sim;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.comm.spi.Transport;
import io.fairlead.comm.spi.TransportSettings;
import io.fairlead.sim.TransportRequests.Copy;
import java.lang.foreign.Arena;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Ranks close a channel at the same time; all on one thread, so that each step is known. */
class WireCloseTest {
  private static final int PAUSES_MAX = 1000;

  /**
   * Rank 1 begins its close when rank 0 has said that it closes, and rank 1 has not seen it yet.
   */
  @Test
  void theWordOfAPeerThatComesBeforeOnesOwnEndsNothing() {
    SimRanks ranks =
        new SimRanks(1, new TransportSettings(2, 1 << 20, 64), SimNetwork.Settings.QUICK);
    Transport zero = ranks.transports.get(0);
    Transport one = ranks.transports.get(1);
    int channel = zero.openChannel(Transport.ROOT_CHANNEL, 0);
    assertThat(one.openChannel(Transport.ROOT_CHANNEL, 0)).isEqualTo(channel);
    for (int round = 0; round < 10; round++) {
      zero.poll();
      one.poll();
    }
    List<Integer> pauses = new ArrayList<>();
    ranks.network.onPause(
        rank -> {
          pauses.add(rank);
          assertThat(pauses).as("the ranks wait, in turn").hasSizeLessThan(PAUSES_MAX);
          if (rank == 0) {
            one.closeChannel(channel);
          }
        });
    zero.closeChannel(channel);
    assertThat(pauses).contains(0);
    ranks.network.onPause(rank -> ranks.transports.get(1 - rank).poll());
    assertThat(ranks.network.violations()).isEmpty();
  }

  /** The peer says nothing, so most of them never left. */
  @Test
  void copiesThatWaitForRoomEndWithTheChannel() {
    SimRanks ranks =
        new SimRanks(
            1,
            new TransportSettings(2, 1 << 20, 64),
            SimNetwork.Settings.QUICK,
            Duration.ofMillis(20));
    Transport zero = ranks.transports.get(0);
    long key = ranks.transports.get(1).expose(Arena.ofAuto().allocate(8));
    for (int round = 0; round < 10; round++) {
      ranks.transports.forEach(Transport::poll);
    }
    List<Copy> copies = new ArrayList<>();
    for (int i = 0; i < 300; i++) {
      Copy copy = new Copy(Transport.ROOT_CHANNEL, 1, key, 0, Arena.ofAuto().allocate(8));
      copies.add(copy);
      if (i % 2 == 0) {
        zero.put(copy);
      } else {
        zero.get(copy);
      }
    }
    assertThat(copies).noneMatch(copy -> copy.isDone());
    ranks.network.onPause(rank -> {});
    zero.closeChannel(Transport.ROOT_CHANNEL);
    assertThat(copies)
        .allSatisfy(
            copy -> {
              assertThat(copy.ends()).isEqualTo(1);
              assertThat(copy.failure()).hasMessageContaining("closed");
            });
  }
}
