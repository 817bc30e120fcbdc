package io.fairlead.comm;

import java.util.function.LongSupplier;

/**
 * When a loop that polls may sleep for long, where its transport can ring.
 *
 * <p>It announces that, polls once more, and sleeps if that was in vain and nothing is in flight.
 * It stays announced from one sleep to the next, each after another poll, so whatever comes rings.
 * Sleeps have an end all the same: whoever rings may die before he does.
 *
 * <pre>
 * ACTIVE  → NAPPING  the first nap: the search is over
 * NAPPING → RESTING  after naps for REST_NANOS, by a poll in vain that was announced before
 * RESTING → NAPPING  something is in flight, or tasks look themselves
 *         → ACTIVE   the transport rang, or something was found
 * any     → ACTIVE   two polls without a nap between: somebody rang the owner
 * </pre>
 *
 * <p>Threads: that of the loop, and affine tasks on it; so all fields are plain.
 */
final class Rest {
  /**
   * The longest nap of a loop that has to poll: the first message after a long silence comes half
   * of it late on average. A nap costs some 13 to 23 µs of a processor, which is 2 to 3 %; an idle
   * engine was measured at 3.6 to 4.6 %.
   */
  static final long NAP_NANOS_MAX = 700_000;

  /**
   * A loop that is rung and finds nothing looks again so long, as does one whose rank has sent: a
   * library may take a moment to hand over what it took. Naps are 0.1 ms by then, which is no more
   * than a ring costs.
   */
  static final long REST_NANOS = 5_000_000;

  /** Instead of how much was found: nobody looked here, since tasks look themselves. */
  static final int OTHERS_LOOK = -1;

  /** Instead of how much was found: nothing, and the loop may sleep until it is rung. */
  static final int MAY_REST = -2;

  /** So long a nap of a loop at rest may be, whatever the settings of its owner. */
  static final long REST_NAP_NANOS_MAX = 10_000_000;

  /** How a loop makes progress; all on its thread. */
  interface Progress {

    /**
     * Looks once.
     *
     * @param asked somebody has rung for it, who may have looked himself just before
     * @return how much it found, or {@link #OTHERS_LOOK}, but not if it was asked
     */
    int poll(boolean asked);

    /**
     * Announces that the loop will sleep, then looks once.
     *
     * @param asked as in {@link #poll}
     * @return how much it found, {@link #OTHERS_LOOK}, or {@link #MAY_REST}
     */
    int pollBeforeRest(boolean asked);

    /** Whether nobody has rung since. */
    boolean isResting();

    /** The loop does not sleep any more: nobody need ring. */
    void endRest();
  }

  private final Progress progress;
  private final LongSupplier clock;

  /** It was about to nap since the last poll. */
  private boolean napped;

  /** 0: it has not napped since it was active. */
  private long nappingSince;

  private boolean announced;
  private boolean resting;

  /** As the last poll said. */
  private boolean lookedFor;

  /** With a clock in nanoseconds. */
  Rest(Progress progress, LongSupplier clock) {
    this.progress = progress;
    this.clock = clock;
  }

  /**
   * Looks once.
   *
   * @param busy the loop had something else to do
   * @param asked somebody has rung for a look since the last poll
   * @return how much it found
   */
  int poll(boolean busy, boolean asked) {
    boolean tired = napped && !busy && !hasRung();
    napped = false;
    resting = false;
    if (!tired) {
      wakeUp();
      return told(progress.poll(asked));
    }
    if (nappingSince == 0 || clock.getAsLong() - nappingSince < REST_NANOS) {
      return told(progress.poll(asked));
    }
    announced = true;
    int found = progress.pollBeforeRest(asked);
    resting = found == MAY_REST;
    return told(found);
  }

  private int told(int found) {
    lookedFor = found == OTHERS_LOOK;
    return Math.max(found, 0);
  }

  /** Whether tasks look for themselves, as the last poll said. */
  boolean isLookedFor() {
    return lookedFor;
  }

  /** It looks again and again for a while, and nobody need ring. */
  private void wakeUp() {
    nappingSince = 0;
    if (announced) {
      announced = false;
      progress.endRest();
    }
  }

  /** Whether it is at rest, and was rung. */
  boolean hasRung() {
    return resting && !progress.isResting();
  }

  /** It is about to nap: for how long at most. */
  long napNanosMax() {
    napped = true;
    if (nappingSince == 0) {
      nappingSince = clock.getAsLong() | 1;
    }
    return resting ? REST_NAP_NANOS_MAX : NAP_NANOS_MAX;
  }
}
