package io.fairlead.task;

/**
 * How long to sleep between two looks at something that nobody announces, once spinning has not
 * helped. Whoever waits, waits longer by half a nap on average; so a nap is a small share of the
 * time that was spent waiting already.
 *
 * <p>Before the first nap there is a search of {@link #SEARCH_NANOS} without any: the system adds
 * some 50 µs to whatever sleep is asked for, which is much for a wait of 200 µs.
 */
final class Nap {
  /** Search without naps: most device work of interest is shorter. */
  static final long SEARCH_NANOS = 300_000;

  /** Less is not worth asking for, beside what the system adds. */
  static final long NANOS_MIN = 20_000;

  /** A nap is this part of the time that was spent waiting: 2 % at most, 1 % on average. */
  static final int SHARE = 50;

  private Nap() {}

  /** The next one, where nothing was found for so long. */
  static long nanos(long idleNanos, long nanosMax) {
    return Math.clamp(idleNanos / SHARE, Math.min(NANOS_MIN, nanosMax), nanosMax);
  }
}
