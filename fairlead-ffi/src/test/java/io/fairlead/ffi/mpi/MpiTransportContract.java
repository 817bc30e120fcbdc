package io.fairlead.ffi.mpi;

import io.fairlead.comm.Launch;
import io.fairlead.comm.spi.Transport;
import io.fairlead.comm.spi.TransportSettings;
import io.fairlead.ffi.MpiLauncher;
import io.fairlead.sim.TransportContract;
import io.fairlead.sim.remote.RemoteRanks;
import java.io.IOException;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.TestInstance;

/** The contract of transports, kept by ranks that a launcher started, each in its own process. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
abstract class MpiTransportContract extends TransportContract {
  private static final int RANKS = 4;

  private final Launch.Family family;
  private final String threads;
  private @Nullable MpiJob job;
  private @Nullable RemoteRanks remote;

  /** {@code threads} as the setting has it. */
  MpiTransportContract(Launch.Family family, String threads) {
    this.family = family;
    this.threads = threads;
  }

  @BeforeAll
  void start() throws IOException {
    MpiLauncher launcher = MpiJob.launcher(family);
    RemoteRanks ranks = new RemoteRanks();
    remote = ranks;
    job =
        MpiJob.start(
            launcher,
            RANKS,
            List.of("-D" + MpiProcess.THREADS_PROPERTY + "=" + threads),
            MpiRank.class,
            Integer.toString(ranks.port()));
    ranks.await(RANKS);
  }

  @AfterAll
  void stop() throws IOException, InterruptedException {
    if (remote != null) {
      remote.close();
    }
    MpiJob started = job;
    if (started != null) {
      try (started) {
        int code = started.await();
        if (code != 0) {
          throw new AssertionError("the ranks ended with " + code + ":\n" + started.output());
        }
      }
    }
  }

  @Override
  protected List<Transport> open(TransportSettings settings) {
    return Objects.requireNonNull(remote).open(settings);
  }

  @Override
  protected boolean sharesCauses() {
    return false;
  }
}
