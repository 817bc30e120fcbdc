package io.fairlead.solver.internal;

import static org.assertj.core.api.Assertions.assertThat;

import java.math.BigDecimal;
import java.util.SplittableRandom;
import org.junit.jupiter.api.Test;

class DecimalTest {
  private static int decided(long digits, int exponent) {
    double fast = Decimal.value(digits, exponent);
    if (Double.isNaN(fast)) {
      return 0;
    }
    double right = Double.parseDouble(digits + "e" + exponent);
    assertThat(fast).as("%de%d", digits, exponent).isEqualTo(right);
    return 1;
  }

  @Test
  void randomDigitsRoundAsTheLibraryDoes() {
    SplittableRandom random = new SplittableRandom(11);
    int decided = 0;
    int tried = 400_000;
    for (int i = 0; i < tried; i++) {
      long digits = random.nextLong(1_000_000_000_000_000_000L) >> random.nextInt(60);
      decided += decided(digits, random.nextInt(-22, 23));
    }
    assertThat(decided).isGreaterThan(tried * 99 / 100);
  }

  @Test
  void printedDoublesComeBack() {
    SplittableRandom random = new SplittableRandom(12);
    int decided = 0;
    int tried = 200_000;
    for (int i = 0; i < tried; i++) {
      BigDecimal printed = new BigDecimal(Double.toString(random.nextDouble(-1e6, 1e6))).abs();
      decided += decided(printed.unscaledValue().longValueExact(), -printed.scale());
    }
    assertThat(decided).isGreaterThan(tried * 99 / 100);
  }

  @Test
  void halvesBetweenDoublesAreLeftToTheLibraryOrRight() {
    SplittableRandom random = new SplittableRandom(13);
    for (int i = 0; i < 100_000; i++) {
      // 2^53 + 1 + 2k lies exactly between two doubles; the next digits decide.
      long middle = (1L << 53) + 1 + 2 * random.nextLong(1L << 52);
      decided(middle, 0);
      decided(middle * 10, -1);
      decided(middle * 10 + 1, -1);
      decided(middle * 10 - 1, -1);
      decided(middle, -random.nextInt(23));
    }
  }

  @Test
  void farExponentsAreLeftToTheLibraryUnlessZero() {
    assertThat(Decimal.value(1, 23)).isNaN();
    assertThat(Decimal.value(1, -23)).isNaN();
    assertThat(Decimal.value(0, 400)).isZero();
  }
}
