package io.fairlead.device;

import io.fairlead.device.spi.Driver;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Which streams the driver is asked about in one poll, among those that somebody waits for and
 * whose signals do not arrive by themselves. A question costs 0.75 µs, so a poll asks a few:
 *
 * <ol>
 *   <li>while streams end in the order in which they were waited for, as those do that come after
 *       each other, the two oldest waits each time;
 *   <li>then those that are overdue, the most overdue one first. A stream is asked again after a
 *       thirty-second of the time for which nothing has changed on it: a wait for a short kernel is
 *       asked for again and again, beside any number of waits that have been long.
 * </ol>
 *
 * <p>Where all that a poll asks about are waits that have just begun, it asks several times in a
 * row: such a wait is as good as a spin, and what lies around a question, the look at everything
 * else and the driver's mode of capture, takes longer than the question.
 *
 * <p>A stream is left out while what is waited for there comes after what is waited for on another
 * stream: that one is asked, or comes after a third. So of many that come after each other only
 * those at the front are asked.
 *
 * <p>The interval ends at {@link #INTERVAL_NANOS}, or longer if so many are asked that this would
 * take more than a two-hundredth of a core.
 *
 * <p>Used by the poller alone: one thread at a time, one after the other.
 */
final class Asks {
  /** Streams that one poll asks: 12 µs, or twice that if all of them have moved on. */
  static final int ASKED_MAX = 16;

  /** Those of them that are asked because they are the oldest. */
  private static final int OLDEST = 2;

  /** Questions of one poll, if they are about waits that have just begun: 3 µs. */
  static final int REPEATED_MAX = 4;

  /** So long a wait counts as having just begun; a carrier looks all the time for that long. */
  private static final long YOUNG_NANOS = 300_000;

  /** So long after one of the oldest was the one to end, the oldest are asked each time. */
  private static final long IN_ORDER_NANOS = 5_000_000;

  /** No new question after that time. */
  private static final long NANOS_MAX = 15_000;

  /** Of the time since a stream moved on, the part after which it is asked again: 1/32. */
  private static final int INTERVAL_SHIFT = 5;

  /** Longest time between two questions about a stream, if there are not too many. */
  private static final long INTERVAL_NANOS = 10_000_000;

  /** What each stream adds to that: 200 times what a question costs. */
  private static final long INTERVAL_NANOS_EACH = 150_000;

  /** What is known of one stream. */
  static final class Asked {
    private long atNanos;
    private long done = -1;
    private long changedNanos;

    /** How many intervals have passed since it was asked. */
    private double overdue(StreamCore core, long now, int offered) {
      if (done != core.done()) {
        done = core.done();
        changedNanos = now;
      }
      long unchanged = now - Math.max(changedNanos, core.newestSince());
      return (double) (now - atNanos) / intervalNanos(unchanged, offered);
    }
  }

  /** The few that rank highest. */
  private static final class Top {
    private final @Nullable StreamCore[] cores;
    private final double[] ranks;
    private int size;

    private Top(int most) {
      cores = new StreamCore[most];
      ranks = new double[most];
    }

    private void offer(StreamCore core, double rank) {
      int place = size;
      if (place == cores.length) {
        place--;
        if (ranks[place] >= rank) {
          return;
        }
      } else {
        size++;
      }
      for (; place > 0 && ranks[place - 1] < rank; place--) {
        cores[place] = cores[place - 1];
        ranks[place] = ranks[place - 1];
      }
      cores[place] = core;
      ranks[place] = rank;
    }

    private boolean has(StreamCore core) {
      for (int i = 0; i < size; i++) {
        if (cores[i] == core) {
          return true;
        }
      }
      return false;
    }

    private void clear() {
      Arrays.fill(cores, 0, size, null);
      size = 0;
    }
  }

  private final Driver driver;
  private final long context;
  private final Top oldest = new Top(OLDEST);
  private final Top overdue = new Top(ASKED_MAX - OLDEST);
  private final @Nullable StreamCore[] chosen = new StreamCore[ASKED_MAX];
  private final long[] handles = new long[ASKED_MAX];
  private final List<StreamCore> offered = new ArrayList<>();
  private long inOrderUntil = System.nanoTime();

  Asks(Driver driver, long context) {
    this.driver = driver;
    this.context = context;
  }

  /** Nobody is offered: what a poll leaves behind in which something went wrong. */
  void forget() {
    offered.clear();
  }

  /** One more that could be asked at the next {@link #ask}. */
  void add(StreamCore core) {
    if (!core.isBehindAnotherWait()) {
      offered.add(core);
    }
  }

  /**
   * Asks some of those that were added, and completes who waited for what is found.
   *
   * @return how many were completed
   */
  int ask() {
    if (offered.isEmpty()) {
      return 0;
    }
    try {
      long now = System.nanoTime();
      rank(now);
      return askChosen(now);
    } finally { // whatever goes wrong: a stream that was offered is not offered for ever
      offered.clear();
      oldest.clear();
      overdue.clear();
      Arrays.fill(chosen, null);
    }
  }

  private void rank(long now) {
    for (StreamCore core : offered) {
      oldest.offer(core, (double) (now - core.waitedSince()));
    }
    for (StreamCore core : offered) {
      double rank = core.asked().overdue(core, now, offered.size());
      if (rank >= 1 && !(isInOrder(now) && oldest.has(core))) {
        overdue.offer(core, rank);
      }
    }
  }

  /**
   * Between two questions about a stream.
   *
   * @param unchanged for how long nothing has changed there
   * @param offered how many could be asked
   */
  static long intervalNanos(long unchanged, int offered) {
    long most = Math.max(INTERVAL_NANOS, offered * INTERVAL_NANOS_EACH);
    return Math.clamp(unchanged >> INTERVAL_SHIFT, 1, most);
  }

  private boolean isInOrder(long now) {
    return now - inOrderUntil < 0;
  }

  private int askChosen(long now) {
    int count = choose(overdue, isInOrder(now) ? choose(oldest, 0) : 0);
    if (count == 0) {
      return 0;
    }
    int asked = driver.ask(context, handles, repeated(count, now), NANOS_MAX);
    int found = 0;
    for (int i = 0; i < Math.min(asked, count); i++) {
      StreamCore core = Objects.requireNonNull(chosen[i]);
      core.asked().atNanos = now;
      int drained = core.drainIfDue();
      if (drained > 0 && oldest.has(core)) {
        inOrderUntil = now + IN_ORDER_NANOS;
      }
      found += drained;
    }
    return found;
  }

  /** Lists what is chosen again, if all of it is young. How many questions that makes. */
  private int repeated(int count, long now) {
    for (int i = 0; i < count; i++) {
      if (now - Objects.requireNonNull(chosen[i]).newestSince() > YOUNG_NANOS) {
        return count;
      }
    }
    int all = count;
    for (; all + count <= REPEATED_MAX; all += count) {
      System.arraycopy(handles, 0, handles, all, count);
    }
    return all;
  }

  private int choose(Top top, int count) {
    for (int i = 0; i < top.size; i++) {
      StreamCore core = Objects.requireNonNull(top.cores[i]);
      chosen[count] = core;
      handles[count] = core.handle();
      count++;
    }
    return count;
  }
}
