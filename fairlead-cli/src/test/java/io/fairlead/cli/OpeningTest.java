package io.fairlead.cli;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.runtime.DriverUnavailableException;
import io.fairlead.runtime.Fairlead;
import io.fairlead.runtime.FairleadConfig;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Devices that are opened, and made ready, while a file is read. */
@Timeout(60)
class OpeningTest {
  private static final FairleadConfig HOST = FairleadConfig.fromSystem().withDevice("host");

  @Test
  void opensPreparesAndCloses() {
    Fairlead opened;
    try (Opening opening = Opening.begin(HOST, true)) {
      opened = opening.open();
      opening.prepared();
      assertThat(opened.device().memory().inUse() - opened.device().memory().pendingFree())
          .isZero();
    }
    assertThatThrownBy(() -> opened.device().allocate(64))
        .isInstanceOf(IllegalStateException.class);
  }

  @Test
  void whoNeverAsksClosesItAllTheSame() {
    Opening opening = Opening.begin(HOST, true);
    opening.close();
    Fairlead opened = opening.open();
    assertThatThrownBy(() -> opened.device().allocate(64))
        .isInstanceOf(IllegalStateException.class);
  }

  @Test
  void aDriverThatIsNotThereIsToldToWhoAsks() {
    try (Opening opening = Opening.begin(HOST.withDevice("abacus"), true)) {
      assertThatThrownBy(opening::open).isInstanceOf(DriverUnavailableException.class);
      assertThatThrownBy(opening::prepared).isInstanceOf(DriverUnavailableException.class);
    }
  }

  @Test
  void aDeviceTooSmallForThePreparationIsLeftToTheSolve() {
    try (Opening opening = Opening.begin(HOST.withDeviceMemory(1 << 12), true)) {
      Fairlead opened = opening.open();
      opening.prepared();
      assertThat(opened.device().memory().limit()).isEqualTo(1 << 12);
    }
  }
}
