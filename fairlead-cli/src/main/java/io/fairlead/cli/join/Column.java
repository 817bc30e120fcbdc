package io.fairlead.cli.join;

import java.math.BigInteger;

/**
 * A column whose values are summed, in fixed point: an integer of units of {@code 10^-scale}.
 *
 * <p>Device code sums 64-bit words. Where a sum of the column's values could be more than that, a
 * value is two words, its upper and its lower half, whose sums cannot.
 *
 * @param name as the header has it
 * @param scale digits after the point
 * @param isWide whether it takes two words of a row
 */
record Column(String name, int scale, boolean isWide) {
  private static final int HALF_BITS = 32;
  private static final long LOWER_HALF = 0xFFFF_FFFFL;

  int words() {
    return isWide ? 2 : 1;
  }

  /** Puts a value into the words of a row from {@code at} on. */
  void put(long value, long[] row, int at) {
    if (isWide) {
      row[at] = value >> HALF_BITS;
      row[at + 1] = value & LOWER_HALF;
    } else {
      row[at] = value;
    }
  }

  /** The value whose words, or the sum whose words' sums, these are. */
  BigInteger value(BigInteger first, BigInteger second) {
    return isWide ? first.shiftLeft(HALF_BITS).add(second) : first;
  }
}
