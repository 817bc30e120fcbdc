package io.fairlead.runtime;

import io.fairlead.comm.CommStats;
import java.util.concurrent.atomic.LongAdder;

/** What the ranks of all {@link Fairlead#ranks} so far have sent. Any thread; lock-free. */
final class RankTraffic {
  private final LongAdder ranks = new LongAdder();
  private final LongAdder sent = new LongAdder();
  private final LongAdder bytes = new LongAdder();
  private final LongAdder collectives = new LongAdder();
  private final LongAdder waitNanos = new LongAdder();

  /** A rank has ended. */
  void add(CommStats stats) {
    ranks.increment();
    sent.add(stats.sent());
    bytes.add(stats.bytesSent());
    collectives.add(stats.collectives());
    waitNanos.add(stats.waitNanos());
  }

  long ranks() {
    return ranks.sum();
  }

  long sent() {
    return sent.sum();
  }

  long bytes() {
    return bytes.sum();
  }

  long collectives() {
    return collectives.sum();
  }

  long waitNanos() {
    return waitNanos.sum();
  }
}
