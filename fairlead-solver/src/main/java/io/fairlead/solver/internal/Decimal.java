package io.fairlead.solver.internal;

/**
 * Decimal to double, correctly rounded, without text for nearly all numbers in files.
 *
 * <p>A number is read as {@code digits · 10^exponent} with at most 18 digits in a long. Up to 2^53
 * and 10^±22 both factors are exact doubles, so one operation rounds once (Clinger 1990). Larger
 * digits are split into two doubles; the product or quotient is then carried in two doubles by
 * fused multiply-add, and its head is the answer unless the tail lies so near half a unit that its
 * own error could matter. Those, and numbers with more digits or far exponents, are {@link
 * #UNDECIDED}: the caller falls back to {@link Double#parseDouble}.
 */
public final class Decimal {
  /** The answer for numbers that need the slow way; never the value of a number here. */
  public static final double UNDECIDED = Double.NaN;

  private static final double[] POWERS = {
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22
  };

  /** The tail's relative error is below 2^-50; a tail this near half a unit is not decided. */
  private static final double NEAR_HALF = 0x1.0p-40;

  private Decimal() {}

  /**
   * Returns {@code digits · 10^exponent} rounded to nearest, or {@link #UNDECIDED}.
   *
   * @param digits from 0 to 10^18
   */
  public static double value(long digits, int exponent) {
    if (exponent < -22 || exponent > 22) {
      return digits == 0 ? 0.0 : UNDECIDED;
    }
    if (digits <= 1L << 53) {
      return exponent < 0 ? digits / POWERS[-exponent] : digits * POWERS[exponent];
    }
    return exponent < 0 ? quotient(digits, POWERS[-exponent]) : product(digits, POWERS[exponent]);
  }

  private static double quotient(long digits, double power) {
    double high = (double) digits;
    double low = (double) (digits - (long) high);
    double head = high / power;
    double rest = Math.fma(-head, power, high) + low;
    return rounded(head, rest / power);
  }

  private static double product(long digits, double power) {
    double high = (double) digits;
    double low = (double) (digits - (long) high);
    double head = high * power;
    double rest = Math.fma(high, power, -head) + low * power;
    return rounded(head, rest);
  }

  private static double rounded(double head, double tail) {
    double sum = head + tail;
    double left = tail - (sum - head);
    double half = 0.5 * Math.ulp(sum);
    boolean near = Math.abs(Math.abs(left) - half) <= NEAR_HALF * half;
    // Below a power of two the spacing halves: the next double down is half as far.
    boolean nearBelow = Math.abs(Math.abs(left) - 0.5 * half) <= NEAR_HALF * half;
    return near || nearBelow ? UNDECIDED : sum;
  }
}
