package io.fairlead.cli.join;

/**
 * Reads numbers as integers of units of a power of ten: {@code 12}, {@code -3.50}, {@code .5}.
 * Holds the last one read; confined to one thread.
 */
final class FixedPoint {
  /** The most digits after the point: as many as a long can hold at all. */
  static final int SCALE_MAX = 18;

  private long value;
  private int scale;

  /** How reading ended. */
  enum Verdict {
    NUMBER,
    NO_NUMBER,
    TOO_LONG
  }

  /** The units of the last number. */
  long value() {
    return value;
  }

  /** Digits after its point. */
  int scale() {
    return scale;
  }

  /** Reads one from {@code begin} to {@code end}; blanks around it do not count. */
  Verdict read(byte[] text, int begin, int end) {
    int from = begin;
    int to = end;
    while (from < to && isBlank(text[from])) {
      from++;
    }
    while (from < to && isBlank(text[to - 1])) {
      to--;
    }
    boolean negative = from < to && text[from] == '-';
    return digits(
        text, from < to && (negative || text[from] == '+') ? from + 1 : from, to, negative);
  }

  private static boolean isBlank(byte c) {
    return c == ' ' || c == '\t';
  }

  /** Counts down, since there is one negative number more. */
  private Verdict digits(byte[] text, int from, int to, boolean negative) {
    long units = 0;
    int point = -1;
    boolean fits = true;
    for (int i = from; i < to; i++) {
      int digit = text[i] - '0';
      if (digit >= 0 && digit <= 9) {
        fits &= units >= (Long.MIN_VALUE + digit) / 10;
        units = 10 * units - digit;
      } else if (text[i] == '.' && point < 0) {
        point = i;
      } else {
        return Verdict.NO_NUMBER;
      }
    }
    int digits = to - from - (point < 0 ? 0 : 1);
    if (digits == 0) {
      return Verdict.NO_NUMBER;
    }
    scale = point < 0 ? 0 : to - point - 1;
    value = negative ? units : -units;
    boolean isLong = !fits || scale > SCALE_MAX || (!negative && units == Long.MIN_VALUE);
    return isLong ? Verdict.TOO_LONG : Verdict.NUMBER;
  }
}
