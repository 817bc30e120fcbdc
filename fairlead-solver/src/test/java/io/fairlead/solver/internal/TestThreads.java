package io.fairlead.solver.internal;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** A few daemon threads behind the {@link Parallel} hook. */
final class TestThreads implements Parallel, AutoCloseable {
  private final int threads;
  private final ExecutorService pool;

  TestThreads(int threads) {
    this.threads = threads;
    this.pool =
        Executors.newFixedThreadPool(
            threads, Thread.ofPlatform().daemon().name("test-range-", 0).factory());
  }

  @Override
  public void forRange(int n, int minChunk, RangeBody body) {
    int pieces = Math.min(threads, n / Math.max(1, minChunk));
    if (pieces <= 1) {
      SEQUENTIAL.forRange(n, minChunk, body);
      return;
    }
    List<Future<?>> running = new ArrayList<>();
    for (int t = 1; t < pieces; t++) {
      int from = (int) ((long) n * t / pieces);
      int to = (int) ((long) n * (t + 1) / pieces);
      running.add(pool.submit(() -> body.run(from, to)));
    }
    body.run(0, n / pieces);
    running.forEach(TestThreads::join);
  }

  private static void join(Future<?> future) {
    try {
      future.get();
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new IllegalStateException("interrupted while a range ran", e);
    } catch (ExecutionException e) {
      throw new IllegalStateException(e.getCause());
    }
  }

  @Override
  public void close() {
    pool.shutdownNow();
  }
}
