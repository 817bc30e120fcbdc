package io.fairlead.runtime;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.comm.Launch;
import io.fairlead.comm.Launch.Family;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeSet;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Whose the devices of a host are, where a launcher started several ranks there. */
class LocalDevicesTest {
  private static final Map<String, String> NOTHING_SET = Map.of();

  private static Optional<Launch> rank(int rank, int ranks) {
    return Optional.of(new Launch("mpirun", Family.OPEN_MPI, rank, ranks, rank, ranks));
  }

  @Test
  void aProcessByItselfHasAll() {
    assertThat(LocalDevices.of(Optional.empty(), 3)).containsExactly(0, 1, 2);
    assertThat(LocalDevices.of(Optional.empty(), 0)).isEmpty();
  }

  @Test
  void whereThereIsNoneNobodyHasAny() {
    assertThat(LocalDevices.of(rank(1, 2), 0)).isEmpty();
  }

  @Test
  void ranksTakeThemInTurn() {
    assertThat(LocalDevices.of(rank(0, 2), 5)).containsExactly(0, 2, 4);
    assertThat(LocalDevices.of(rank(1, 2), 5)).containsExactly(1, 3);
    assertThat(LocalDevices.of(rank(3, 4), 4)).containsExactly(3);
    assertThat(LocalDevices.of(rank(4, 5), 2)).containsExactly(0);
  }

  /** Each rank has one at least, each device somebody, and none two owners before all have one. */
  @ParameterizedTest
  @CsvSource({"1,1", "1,8", "2,8", "3,8", "8,8", "9,8", "64,8", "2,1"})
  void noneIsLeftOut(int ranks, int devices) {
    List<Integer> given = new ArrayList<>();
    for (int rank = 0; rank < ranks; rank++) {
      int[] own = LocalDevices.of(rank(rank, ranks), devices);
      assertThat(own).isNotEmpty();
      for (int each : own) {
        given.add(each);
      }
    }
    assertThat(new TreeSet<>(given)).hasSize(devices);
    assertThat(given).hasSize(Math.max(ranks, devices));
  }

  @Test
  void theFirstRankOfAHostWarnsWhereTheyShare() {
    assertThat(LocalDevices.warning(rank(0, 3), "cuda", 1, NOTHING_SET))
        .contains(
            "3 ranks share 1 cuda device(s) of this host and take turns on them. Start no more ranks"
                + " than there are devices, or use the host device");
    assertThat(LocalDevices.warning(rank(1, 3), "cuda", 1, NOTHING_SET)).isEmpty();
    assertThat(LocalDevices.warning(rank(0, 2), "cuda", 2, NOTHING_SET)).isEmpty();
    assertThat(LocalDevices.warning(Optional.empty(), "cuda", 1, NOTHING_SET)).isEmpty();
  }

  /** A launcher that shows each rank one device may show each another one. */
  @Test
  void aDeviceThatIsShownAloneIsNotKnownToBeShared() {
    assertThat(LocalDevices.warning(rank(0, 2), "cuda", 1, Map.of("CUDA_VISIBLE_DEVICES", "GPU-1")))
        .isEmpty();
    assertThat(LocalDevices.warning(rank(0, 3), "cuda", 2, Map.of("CUDA_VISIBLE_DEVICES", "0,1")))
        .isPresent();
  }
}
