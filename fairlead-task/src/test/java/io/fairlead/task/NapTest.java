package io.fairlead.task;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatIllegalArgumentException;

import java.util.List;
import org.junit.jupiter.api.Test;

class NapTest {
  @Test
  void aNapIsAShareOfTheWait() {
    assertThat(Nap.nanos(50_000_000, 10_000_000)).isEqualTo(1_000_000);
  }

  @Test
  void aNapIsNeitherShorterNorLongerThanItsBounds() {
    assertThat(Nap.nanos(0, 1_000_000)).isEqualTo(Nap.NANOS_MIN);
    assertThat(Nap.nanos(10_000_000_000L, 1_000_000)).isEqualTo(1_000_000);
    assertThat(Nap.nanos(10_000_000_000L, 5_000)).isEqualTo(5_000);
    assertThat(Nap.nanos(0, 5_000)).isEqualTo(5_000);
  }

  /** As long as it searches without naps, the next one is the shortest. */
  @Test
  void theFirstNapIsTheShortest() {
    assertThat(Nap.nanos(Nap.SEARCH_NANOS, 1_000_000)).isEqualTo(Nap.NANOS_MIN);
  }

  /** Each costs 13 to 20 µs of a processor, and what is looked at comes on top. */
  @Test
  void aWaitOfASecondTakesFewNaps() {
    int naps = 0;
    long late = 20_000; // what the system adds to each
    for (long idle = Nap.SEARCH_NANOS; idle < 1_000_000_000; naps++) {
      idle += Nap.nanos(idle, TaskConfig.DEFAULT.pollParkNanosMax()) + late;
    }
    assertThat(naps).isLessThan(400);
  }

  @Test
  void aTaskLooksForNoLongerThanItsCarrierSearches() {
    assertThat(Nap.lookNanos()).isBetween(1L, Nap.SEARCH_NANOS);
  }

  @Test
  void aTimeThatCannotBeIsRefusedByName() {
    assertThat(Nap.micros("fairlead.some.micros", " 250 ")).isEqualTo(250);
    assertThat(Nap.micros("fairlead.some.micros", "0")).isZero();
    for (String each : List.of("-1", "1000001", "10us", "")) {
      assertThatIllegalArgumentException()
          .isThrownBy(() -> Nap.micros("fairlead.some.micros", each))
          .withMessage(
              "property fairlead.some.micros is '"
                  + each
                  + "'; it must be a number from 0 to 1000000");
    }
  }
}
