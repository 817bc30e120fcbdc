package io.fairlead.lab.host;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;

/**
 * What a kernel is compared with: a range cut into as many equal parts as there are threads, which
 * stay between loops and spin a while before they park. The caller is one of them.
 */
final class ParallelLoop implements AutoCloseable {
  /** About 50 µs, as the device's workers. */
  private static final int SPINS = 1_000;

  /** Runs a part of the range. */
  interface Body {
    void run(long begin, long end);
  }

  private record Round(int number, long items, Body body) {}

  private final int threads;
  private final List<Thread> team = new ArrayList<>();
  private final AtomicInteger unfinished = new AtomicInteger();
  private volatile Round round = new Round(0, 0, (begin, end) -> {});
  private volatile boolean stop;

  ParallelLoop(int threads) {
    this.threads = threads;
    for (int i = 1; i < threads; i++) {
      int part = i;
      team.add(Thread.ofPlatform().daemon().start(() -> work(part)));
    }
  }

  /** Runs all of the range and returns when it has run. One thread at a time. */
  void run(long items, Body body) {
    unfinished.set(threads - 1);
    Round next = new Round(round.number + 1, items, body);
    round = next;
    team.forEach(LockSupport::unpark);
    part(next, 0);
    while (unfinished.get() > 0) {
      Thread.onSpinWait();
    }
  }

  private void part(Round r, int part) {
    r.body.run(r.items * part / threads, r.items * (part + 1) / threads);
  }

  private void work(int part) {
    int done = 0;
    int spins = 0;
    while (!stop) {
      Round next = round;
      if (next.number != done) {
        part(next, part);
        done = next.number;
        spins = 0;
        unfinished.decrementAndGet();
      } else if (++spins < SPINS) {
        Thread.onSpinWait();
      } else {
        LockSupport.park(this);
      }
    }
  }

  @Override
  public void close() {
    stop = true;
    team.forEach(LockSupport::unpark);
  }
}
