package io.fairlead.sim;

import io.fairlead.comm.spi.Transport;
import io.fairlead.comm.spi.TransportSettings;
import io.fairlead.comm.wire.WireTransport;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/** Transports over a simulated network, all driven by one thread: who waits polls the others. */
final class SimRanks {
  final SimNetwork network;
  final List<Transport> transports = new ArrayList<>();
  private final Set<Integer> waiting = new HashSet<>();

  SimRanks(long seed, TransportSettings settings, SimNetwork.Settings how) {
    this(seed, settings, how, Duration.ofMillis(3_500));
  }

  /** With ranks that wait so long for others when they close. */
  SimRanks(long seed, TransportSettings settings, SimNetwork.Settings how, Duration closeWait) {
    network = new SimNetwork(seed, settings.ranks(), how);
    network.onPause(this::pollOthers);
    for (int rank = 0; rank < settings.ranks(); rank++) {
      transports.add(new WireTransport(network.wire(rank), settings, closeWait));
    }
  }

  private void pollOthers(int rank) {
    waiting.add(rank);
    for (Transport transport : transports) {
      if (!waiting.contains(transport.rank())) {
        transport.poll();
      }
    }
    waiting.remove(rank);
  }
}
