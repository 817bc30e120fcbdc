package io.fairlead.sim;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.comm.spi.Traffic;
import io.fairlead.comm.spi.Transport;
import io.fairlead.comm.spi.TransportException;
import io.fairlead.comm.spi.TransportSettings;
import io.fairlead.sim.TransportRequests.Receive;
import io.fairlead.sim.TransportRequests.Send;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Objects;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * An offer whose length is changed on its way. The receives are posted for the length that came,
 * and some libraries write beyond a receive that is too short; so no memory may move then.
 */
class WireLengthsTest {
  private static final long BYTES = 100_000;

  /** Where a packet says how long what it offers is. */
  private static final long LENGTH_AT = 24;

  @ParameterizedTest
  @ValueSource(longs = {50_000, 99_999, 100_001, 1 << 20})
  void nothingIsSentThatTheReceiverDoesNotExpect(long said) {
    SimRanks ranks =
        new SimRanks(1, new TransportSettings(2, 1 << 20, 64), SimNetwork.Settings.QUICK);
    Transport zero = ranks.transports.get(0);
    Transport one = ranks.transports.get(1);
    pollBoth(ranks);
    ranks.network.tamper(
        (source, target, memory, bytes) -> {
          if (source == 0 && memory.get(ValueLayout.JAVA_LONG, LENGTH_AT) == BYTES) {
            memory.set(ValueLayout.JAVA_LONG, LENGTH_AT, said);
          }
          return bytes;
        });
    MemorySegment data = Arena.ofAuto().allocate(BYTES, 64);
    Send send = new Send(Transport.ROOT_CHANNEL, Traffic.DATA, 1, 5, data);
    Receive receive =
        new Receive(
            Transport.ROOT_CHANNEL,
            Traffic.DATA,
            0,
            5,
            Arena.ofAuto().allocate(Math.max(said, BYTES), 64).asSlice(0, said));
    one.receive(receive);
    zero.send(send);
    pollBoth(ranks);
    assertThat(send.ends()).isEqualTo(1);
    TransportException cause = Objects.requireNonNull(send.failure());
    assertThat(cause).hasMessageContaining("other lengths than were offered");
    assertThat(receive.ends()).isEqualTo(1);
    assertThat(receive.failure()).isNotNull();
    assertThat(ranks.network.violations()).isEmpty();
  }

  private static void pollBoth(SimRanks ranks) {
    for (int round = 0; round < 50; round++) {
      ranks.transports.forEach(Transport::poll);
    }
  }
}
