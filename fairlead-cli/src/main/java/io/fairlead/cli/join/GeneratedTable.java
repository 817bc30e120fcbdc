package io.fairlead.cli.join;

import java.util.List;

/**
 * Rows that are a function of the seed and of their number alone: whoever reads them, in whichever
 * order, gets the same. Keys are {@code 0} to {@code keys - 1}; with a skew of {@code s}, key
 * {@code k} is about as frequent as {@code (k + 1)^-s}, and with 0 all are equally frequent.
 *
 * @param keys how many different keys there may be, at least 1
 * @param value the one column: from {@code -VALUE_MAX} to {@code VALUE_MAX} units
 */
record GeneratedTable(String name, long rows, long keys, double skew, long seed, Column value)
    implements Table {
  private static final long VALUE_MAX = 9_999;

  /** Of SplitMix64: the golden ratio, and the multipliers that mix. */
  private static final long GAMMA = 0x9E37_79B9_7F4A_7C15L;

  private static final long MIX_FIRST = 0xBF58_476D_1CE4_E5B9L;
  private static final long MIX_SECOND = 0x94D0_49BB_1331_11EBL;

  private static final double UNIT = 0x1.0p-53;

  @Override
  public List<Column> columns() {
    return List.of(value);
  }

  @Override
  public void read(long first, int count, long[] target) {
    for (int i = 0; i < count; i++) {
      long random = mixed(seed + (2 * (first + i) + 1) * GAMMA);
      target[2 * i] = key(random);
      target[2 * i + 1] = value(mixed(random + GAMMA));
    }
  }

  private long key(long random) {
    if (skew == 0) {
      return Math.unsignedMultiplyHigh(random, keys);
    }
    return Math.clamp((long) rank((random >>> 11) * UNIT) - 1, 0L, keys - 1);
  }

  /** The inverse of a power law between 1 and {@code keys + 1}; strict, to be alike everywhere. */
  private double rank(double uniform) {
    double end = keys + 1.0;
    double exponent = 1 - skew;
    if (exponent == 0) {
      return StrictMath.pow(end, uniform);
    }
    double share = 1 + uniform * (StrictMath.pow(end, exponent) - 1);
    return StrictMath.pow(share, 1 / exponent);
  }

  private static long value(long random) {
    return Math.unsignedMultiplyHigh(random, 2 * VALUE_MAX + 1) - VALUE_MAX;
  }

  private static long mixed(long z) {
    long first = (z ^ (z >>> 30)) * MIX_FIRST;
    long second = (first ^ (first >>> 27)) * MIX_SECOND;
    return second ^ (second >>> 31);
  }
}
