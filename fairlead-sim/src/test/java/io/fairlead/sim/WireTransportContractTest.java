package io.fairlead.sim;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.comm.spi.ThreadLevel;
import io.fairlead.comm.spi.Transport;
import io.fairlead.comm.spi.TransportSettings;
import java.util.List;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Nested;

/** The protocol core keeps the contract of all transports, on wires of several kinds. */
class WireTransportContractTest {

  private abstract static class OnWire extends TransportContract {
    private final SimNetwork.Settings how;
    private @Nullable SimRanks ranks;

    OnWire(SimNetwork.Settings how) {
      this.how = how;
    }

    @Override
    protected List<Transport> open(TransportSettings settings) {
      SimRanks made = new SimRanks(1, settings, how);
      ranks = made;
      return made.transports;
    }

    @Override
    protected boolean sharesCauses() {
      return false;
    }

    @AfterEach
    final void theCoreAsksNothingForbidden() {
      SimRanks used = ranks;
      if (used != null) {
        assertThat(used.network.violations()).isEmpty();
      }
    }
  }

  @Nested
  class Funneled extends OnWire {
    Funneled() {
      super(SimNetwork.Settings.QUICK.withLevel(ThreadLevel.FUNNELED));
    }
  }

  @Nested
  class Serialized extends OnWire {
    Serialized() {
      super(SimNetwork.Settings.QUICK);
    }
  }

  /** Packets that hold little, few of them, bulk in many pieces, and nothing comes at once. */
  @Nested
  class Scarce extends OnWire {
    Scarce() {
      super(SimNetwork.Settings.QUICK.withWant(512, 3, 1000, 4));
    }
  }
}
