package io.fairlead.memory;

import java.util.Locale;

/**
 * Which allocations of a device fail on purpose, as if it had no room: for tests of programs.
 * Buffers of no bytes do not count. {@link SpillConfig} has the same for what spilling asks for.
 *
 * @param nth the allocation that fails, counted from 1 since the device was opened; 0 for none
 * @param rate the part of all allocations that fail, from 0 to 1
 * @param seed of the draw for {@code rate}: the same allocations by number fail with the same seed,
 *     whichever tasks make them
 */
public record MemoryFailures(long nth, double rate, long seed) {
  /** No allocation fails on purpose. */
  public static final MemoryFailures NONE = new MemoryFailures(0, 0, 0);

  public MemoryFailures {
    if (nth < 0 || !(rate >= 0 && rate <= 1)) {
      throw new IllegalArgumentException(
          "nth is " + nth + " and rate is " + rate + "; count from 1, and a rate is 0 to 1");
    }
  }

  /** The nth allocation fails, and no other. */
  public static MemoryFailures nth(long nth) {
    return new MemoryFailures(nth, 0, 0);
  }

  /** Each allocation fails with that probability. */
  public static MemoryFailures rate(double rate, long seed) {
    return new MemoryFailures(0, rate, seed);
  }

  /**
   * Reads {@code none}, {@code 7} (the seventh), {@code 2%} or {@code 2%:42} (with seed 42).
   *
   * @throws IllegalArgumentException if it is none of these
   */
  public static MemoryFailures parse(String text) {
    String trimmed = text.strip().toLowerCase(Locale.ROOT);
    try {
      if (trimmed.equals("none")) {
        return NONE;
      }
      int percent = trimmed.indexOf('%');
      if (percent < 0) {
        return nth(Long.parseLong(trimmed));
      }
      double rate = Double.parseDouble(trimmed.substring(0, percent)) / 100;
      String seed = trimmed.substring(percent + 1);
      if (!seed.isEmpty() && !seed.startsWith(":")) {
        throw new IllegalArgumentException("no seed: " + seed);
      }
      return rate(rate, seed.isEmpty() ? 0 : Long.parseLong(seed.substring(1)));
    } catch (IllegalArgumentException e) {
      throw new IllegalArgumentException(
          "'"
              + text
              + "' must be none, a number (7: the seventh), or a rate with or without a seed"
              + " (2%, 2%:42)",
          e);
    }
  }

  /** Whether any allocation can fail. */
  boolean isAny() {
    return nth > 0 || rate > 0;
  }

  boolean isDue(long request) {
    return request == nth || (rate > 0 && draw(request) < rate);
  }

  /** Of SplitMix64 (Steele, Lea and Flood, 2014), so that a number needs no state. */
  private double draw(long request) {
    long z = seed + request * 0x9E3779B97F4A7C15L;
    z = (z ^ (z >>> 30)) * 0xBF58476D1CE4E5B9L;
    z = (z ^ (z >>> 27)) * 0x94D049BB133111EBL;
    return ((z ^ (z >>> 31)) >>> 11) * 0x1.0p-53;
  }

  /** As {@link #parse} reads it. */
  @Override
  public String toString() {
    if (!isAny()) {
      return "none";
    }
    return rate > 0 ? 100 * rate + "%:" + seed : Long.toString(nth);
  }
}
