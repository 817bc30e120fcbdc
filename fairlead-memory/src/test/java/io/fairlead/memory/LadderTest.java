package io.fairlead.memory;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

class LadderTest {
  private static final long SHORT = 100_000;
  private static final long LONG = 5_000_000;

  /** Else a deadlock that comes up just then is found late, on a machine that is busy. */
  @Test
  void oneLookThatWasHeldUpMakesNoLongPause() {
    assertThat(Ladder.pauseNanos(LONG, SHORT)).isEqualTo(Ladder.pauseNanos(SHORT, SHORT));
    assertThat(Ladder.pauseNanos(SHORT, LONG)).isEqualTo(Ladder.pauseNanos(SHORT, SHORT));
  }

  @Test
  void longLooksArePartOfTheTimeOnly() {
    assertThat(Ladder.pauseNanos(LONG, LONG)).isEqualTo(4 * LONG);
    assertThat(Ladder.pauseNanos(100 * LONG, 100 * LONG)).isEqualTo(50_000_000);
  }
}
