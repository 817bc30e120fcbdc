package io.fairlead.sim;

import io.fairlead.comm.InProcess;
import io.fairlead.comm.spi.Transport;
import io.fairlead.comm.spi.TransportSettings;
import io.fairlead.sim.remote.RankAgent;
import io.fairlead.sim.remote.RemoteRanks;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;

/**
 * The suite, driving ranks over a connection, finds the in-process transport in order as it does
 * without: so what it finds in ranks of other processes is theirs.
 */
class RemoteRanksContractTest extends TransportContract {
  private static final int RANKS = 4;
  private static @Nullable RemoteRanks remote;

  @BeforeAll
  static void start() throws IOException {
    RemoteRanks ranks = new RemoteRanks();
    Map<Integer, List<Transport>> worlds = new ConcurrentHashMap<>();
    for (int rank = 0; rank < RANKS; rank++) {
      int me = rank;
      Thread.ofPlatform()
          .daemon()
          .name("agent-" + rank)
          .start(() -> serve(ranks.port(), me, worlds));
    }
    ranks.await(RANKS);
    remote = ranks;
  }

  private static void serve(int port, int rank, Map<Integer, List<Transport>> worlds) {
    int[] opened = {0};
    Function<TransportSettings, @Nullable Transport> opener =
        settings -> {
          List<Transport> world =
              worlds.computeIfAbsent(opened[0]++, _ -> InProcess.provider().open(settings));
          return rank < world.size() ? world.get(rank) : null;
        };
    try {
      RankAgent.serve(port, rank, opener);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  @AfterAll
  static void stop() throws IOException {
    if (remote != null) {
      remote.close();
      remote = null;
    }
  }

  @Override
  protected List<Transport> open(TransportSettings settings) {
    return Objects.requireNonNull(remote).open(settings);
  }
}
