package io.fairlead.ffi.mpi;

import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.comm.Launch;
import io.fairlead.comm.Launch.Family;
import io.fairlead.comm.spi.TransportException;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.SequencedSet;
import org.junit.jupiter.api.Test;

/** What is said where there is no library. */
class MpiLibraryTest {
  private static final SequencedSet<String> NOWHERE =
      new LinkedHashSet<>(List.of("libnowhere.so.1", "libnowhere.so.2"));

  private static Launch by(Family family) {
    return new Launch("mpirun", family, 0, 2, 0, 2);
  }

  @Test
  void whereThereIsNoneItSaysWhatToInstall() {
    assertThatThrownBy(() -> MpiLibrary.find(null, NOWHERE))
        .isInstanceOf(TransportException.class)
        .hasMessage(
            "no MPI library is here: tried libnowhere.so.1, libnowhere.so.2; install Open MPI"
                + " (Debian: libopenmpi-dev openmpi-bin) or MPICH (libmpich-dev mpich), or name the"
                + " library with -Dfairlead.mpi.library=PATH");
  }

  /** The other family's would not do. */
  @Test
  void underALauncherItIsTheOneOfItsFamily() {
    assertThatThrownBy(() -> MpiLibrary.find(by(Family.OPEN_MPI), NOWHERE))
        .hasMessageContaining("install Open MPI (Debian: libopenmpi-dev openmpi-bin), or name");
    assertThatThrownBy(() -> MpiLibrary.find(by(Family.MPICH), NOWHERE))
        .hasMessageContaining("install MPICH (Debian: libmpich-dev mpich), or name");
  }
}
