package io.fairlead.runtime;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.comm.Comm;
import io.fairlead.comm.InProcess;
import io.fairlead.comm.Launch;
import io.fairlead.comm.Launch.Family;
import io.fairlead.comm.ReduceOp;
import io.fairlead.comm.spi.Transport;
import io.fairlead.comm.spi.TransportException;
import io.fairlead.comm.spi.TransportProvider;
import io.fairlead.comm.spi.TransportSettings;
import java.util.List;
import java.util.Optional;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;

/** Which transport the ranks of a program meet over; nothing falls back quietly. */
class WorldTest {
  private static final TransportProvider HERE = InProcess.provider();
  private static final TransportProvider MPI = new Stub("mpi", null);
  private static final TransportProvider NO_MPI = new Stub("mpi", "no MPI library is here");
  private static final Optional<Launch> BY_ITSELF = Optional.empty();
  private static final Optional<Launch> LAUNCHED =
      Optional.of(new Launch("Open MPI's mpirun", Family.OPEN_MPI, 1, 2, 1, 2));

  private record Stub(String name, @Nullable String unavailable) implements TransportProvider {
    @Override
    public List<Transport> open(TransportSettings settings) {
      throw new AssertionError("nobody opens it");
    }
  }

  private static TransportProvider choose(
      String named, Optional<Launch> launch, TransportProvider... providers) {
    return World.choose(named, launch, List.of(providers));
  }

  @Test
  void aProcessByItselfNeedsNoLibrary() {
    assertThat(choose("auto", BY_ITSELF, HERE, NO_MPI)).isSameAs(HERE);
    assertThat(choose("auto", BY_ITSELF, MPI, HERE)).isSameAs(HERE);
  }

  @Test
  void ranksOfALauncherMeetOverMpi() {
    assertThat(choose("auto", LAUNCHED, HERE, MPI)).isSameAs(MPI);
  }

  @Test
  void theSettingHasTheLastWord() {
    assertThat(choose("mpi", BY_ITSELF, HERE, MPI)).isSameAs(MPI);
    assertThat(choose("in-process", LAUNCHED, HERE, MPI)).isSameAs(HERE);
  }

  /** Each of them would do all of the work. */
  @Test
  void launchedRanksThatCannotMeetDoNotGoOnAlone() {
    assertThatThrownBy(() -> choose("auto", LAUNCHED, HERE, NO_MPI))
        .isInstanceOf(TransportException.class)
        .hasMessage(
            "Open MPI's mpirun started 2 ranks, and transport 'mpi' cannot be used: no MPI library is"
                + " here");
    assertThatThrownBy(() -> choose("auto", LAUNCHED, HERE))
        .isInstanceOf(TransportException.class)
        .hasMessageContaining("Open MPI's mpirun started 2 ranks, and there is no transport 'mpi'")
        .hasMessageContaining("found in-process; io.fairlead.ffi brings mpi");
  }

  @Test
  void whatIsNamedAndNotThereIsSaid() {
    assertThatThrownBy(() -> choose("mpi", BY_ITSELF, HERE, NO_MPI))
        .hasMessage("transport 'mpi' cannot be used: no MPI library is here");
    assertThatThrownBy(() -> choose("pigeon", BY_ITSELF, HERE, MPI))
        .hasMessage(
            "there is no transport 'pigeon' on the path; found in-process, mpi; io.fairlead.ffi"
                + " brings mpi");
    assertThatThrownBy(() -> choose("mpi", BY_ITSELF)).hasMessageContaining("found none");
  }

  @Test
  void itIsOpenedOnceAndEndsWithFairlead() {
    Comm world;
    try (Fairlead fairlead = Fairlead.open(config())) {
      world = fairlead.world();
      assertThat(fairlead.world()).isSameAs(world);
      assertThat(world.size()).isEqualTo(1);
      double[] sum = {3};
      world.allReduce(sum, ReduceOp.SUM).await();
      assertThat(sum[0]).isEqualTo(3);
      Comm duplicate = world.duplicate();
      duplicate.close();
      world.barrier().await();
    }
    assertThatThrownBy(() -> world.receive(0, 1).await()).hasMessageContaining("closed");
  }

  @Test
  void aClosedFairleadHasNoWorld() {
    Fairlead fairlead = Fairlead.open(config());
    fairlead.close();
    assertThatThrownBy(fairlead::world)
        .isInstanceOf(IllegalStateException.class)
        .hasMessageContaining("closed");
  }

  /** And says so again to the next who asks. */
  @Test
  void aTransportThatIsNotThereFailsTheAskerOnly() {
    try (Fairlead fairlead = Fairlead.open(config().withTransport("pigeon"))) {
      assertThatThrownBy(fairlead::world).hasMessageContaining("no transport 'pigeon'");
      assertThatThrownBy(fairlead::world).hasMessageContaining("no transport 'pigeon'");
      assertThat(fairlead.ranks(2, Comm::size)).containsExactly(2, 2);
    }
  }

  private static FairleadConfig config() {
    return FairleadConfig.defaults().withDevice("host").withHostWorkers(1);
  }
}
