package io.fairlead.task;

/**
 * How long to sleep between two looks at something that nobody announces, once spinning has not
 * helped. Whoever waits, waits longer by half a nap on average; so a nap is a small share of the
 * time that was spent waiting already.
 *
 * <p>Before the first nap there is a search of {@link #SEARCH_NANOS} without any: going to sleep
 * and waking takes the system some 10 to 30 µs whatever sleep is asked for, which is 2 % of a wait
 * of a millisecond.
 */
final class Nap {
  private static final String SEARCH_PROPERTY = "fairlead.search.micros";
  private static final String LOOK_PROPERTY = "fairlead.look.micros";
  private static final long MICROS_MAX = 1_000_000;

  /** Search without naps: most device work of interest is shorter. */
  static final long SEARCH_NANOS =
      1_000 * micros(SEARCH_PROPERTY, System.getProperty(SEARCH_PROPERTY, "1000"));

  /** Less is not worth asking for, beside what the system adds. */
  static final long NANOS_MIN = 20_000;

  /** A nap is this part of the time that was spent waiting: 2 % at most, 1 % on average. */
  static final int SHARE = 50;

  private Nap() {}

  /**
   * How long a waiting task looks itself, of that search: as long as parking it and taking it up
   * again is more than a hundredth of its wait.
   */
  static long lookNanos() {
    long nanos = 1_000 * micros(LOOK_PROPERTY, System.getProperty(LOOK_PROPERTY, "300"));
    return Math.min(nanos, SEARCH_NANOS);
  }

  /**
   * What a setting says.
   *
   * @throws IllegalArgumentException that names the property, its value, and what it may be
   */
  static long micros(String property, String text) {
    try {
      long micros = Long.parseLong(text.strip());
      if (micros >= 0 && micros <= MICROS_MAX) {
        return micros;
      }
    } catch (NumberFormatException notANumber) {
      // said below
    }
    throw new IllegalArgumentException(
        "property " + property + " is '" + text + "'; it must be a number from 0 to " + MICROS_MAX);
  }

  /** The next one, where nothing was found for so long. */
  static long nanos(long idleNanos, long nanosMax) {
    return Math.clamp(idleNanos / SHARE, Math.min(NANOS_MIN, nanosMax), nanosMax);
  }
}
