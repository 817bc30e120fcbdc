package io.fairlead.cli.join;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.Arrays;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Rows that follow from their number. */
class GeneratedTableTest {
  private static final int ROWS = 20_000;
  private static final int KEYS = 1_000;

  private static long[] rows(double skew, long seed) {
    Table table = Tables.generated("t", ROWS, KEYS, skew, seed);
    long[] all = new long[2 * ROWS];
    table.read(0, ROWS, all);
    return all;
  }

  private static int[] frequencies(long[] rows) {
    int[] found = new int[KEYS];
    for (int i = 0; i < rows.length; i += 2) {
      found[(int) rows[i]]++;
    }
    return found;
  }

  @ParameterizedTest
  @ValueSource(doubles = {0, 0.5, 1, 1.2, 10})
  void aRowIsTheSameWhoeverReadsItAndKeysAreInRange(double skew) {
    long[] all = rows(skew, 5);
    Table table = Tables.generated("t", ROWS, KEYS, skew, 5);
    long[] some = new long[2 * 77];
    table.read(1234, 77, some);
    assertThat(some).isEqualTo(Arrays.copyOfRange(all, 2 * 1234, 2 * (1234 + 77)));
    assertThat(Arrays.stream(frequencies(all)).sum()).isEqualTo(ROWS);
    assertThat(rows(skew, 6)).isNotEqualTo(all);
  }

  @Test
  void withoutSkewAllKeysAreAboutAsFrequent() {
    assertThat(Arrays.stream(frequencies(rows(0, 1))).max().orElseThrow()).isLessThan(60);
  }

  @Test
  void withSkewTheFirstKeyIsTheMostFrequent() {
    int[] found = frequencies(rows(1, 1));
    assertThat(found[0]).isGreaterThan(ROWS / 20).isGreaterThan(5 * found[9]);
    assertThat(frequencies(rows(10, 1))[0]).isGreaterThan(ROWS * 9 / 10);
  }
}
