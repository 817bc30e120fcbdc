package io.fairlead.cli.bench;

import io.fairlead.runtime.Fairlead;
import io.fairlead.task.Forks;
import io.fairlead.task.LongFork;
import io.fairlead.task.LongFrame;
import io.fairlead.task.TaskScope;
import java.lang.management.ManagementFactory;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.RecursiveTask;
import java.util.function.LongSupplier;

/**
 * What forks cost beside plain calls and ForkJoinPool, taking turns. Runs in a task of ours, on as
 * many processors as there are.
 */
final class ForkProbes {
  /** Seed 002's: 2,178,308 forks. */
  static final int N = 31;

  private static final LongFork FIB = ForkProbes::fib;
  private static final LongFork JOB = (forks, steps) -> job(steps);
  private static final int PAIRS = 20_000;

  /** On one core the compiler needs its turns too. */
  private static final int WARM_UP = 20;

  private final Fairlead fairlead;
  private final int rounds;

  ForkProbes(Fairlead fairlead, boolean quick) {
    this.fairlead = fairlead;
    this.rounds = quick ? 5 : 21;
  }

  /** The forks of {@link #N}. */
  static double forks() {
    double[] forks = new double[N + 1];
    for (int i = 2; i <= N; i++) {
      forks[i] = 1 + forks[i - 1] + forks[i - 2];
    }
    return forks[N];
  }

  /** Nanoseconds of plain calls, of frames, of ForkJoinPool. */
  double[][] recursion() {
    try (ForkJoinPool pool = new ForkJoinPool(Runtime.getRuntime().availableProcessors())) {
      return alternate(() -> serial(N), this::framed, () -> pool.invoke(new PoolFib(N)));
    }
  }

  /** Bytes for each fork of the recursion. */
  double garbage() {
    return bytes(this::framed) / forks();
  }

  /** Nanoseconds for each pair of jobs of about a microsecond: forked, and one after the other. */
  double[][] fine() {
    long steps = stepsOfAMicrosecond();
    double[][] nanos = alternate(() -> forkedPairs(steps), () -> pairs(steps));
    for (double[] each : nanos) {
      for (int i = 0; i < each.length; i++) {
        each[i] /= PAIRS;
      }
    }
    return nanos;
  }

  /** Nanoseconds and bytes that a child of a scope costs, of ten, without the scope. */
  double[][] scopeForks() {
    int scopes = 20_000;
    int children = 10;
    double forks = scopes * (double) children;
    LongSupplier full = () -> scopes(scopes, children);
    LongSupplier empty = () -> scopes(scopes, 0);
    double[][] nanos = alternate(full, empty);
    double[] each = new double[rounds];
    for (int i = 0; i < rounds; i++) {
      each[i] = (nanos[0][i] - nanos[1][i]) / forks;
    }
    return new double[][] {each, {(bytes(full) - bytes(empty)) / forks}};
  }

  /** A fork-join computation that takes some milliseconds. */
  void compute() {
    try (TaskScope<Long> scope = fairlead.scope()) {
      var _ = scope.forkJoin(FIB, 25);
    }
  }

  private long scopes(int count, int children) {
    long sum = 0;
    for (int i = 0; i < count; i++) {
      try (TaskScope<Long> scope = fairlead.scope()) {
        for (int k = 0; k < children; k++) {
          scope.fork(() -> 1L);
        }
        sum += scope.join().size();
      }
    }
    return sum;
  }

  private long framed() {
    try (TaskScope<Long> scope = fairlead.scope()) {
      return scope.forkJoin(FIB, N);
    }
  }

  private static long fib(Forks forks, long n) {
    if (n < 2) {
      return n;
    }
    LongFrame first = forks.fork(FIB, n - 1);
    long second = fib(forks, n - 2);
    return forks.join(first) + second;
  }

  private static long serial(long n) {
    return n < 2 ? n : serial(n - 1) + serial(n - 2);
  }

  @SuppressWarnings("serial") // never serialised
  private static final class PoolFib extends RecursiveTask<Long> {
    private final int n;

    PoolFib(int n) {
      this.n = n;
    }

    @Override
    protected Long compute() {
      if (n < 2) {
        return (long) n;
      }
      PoolFib first = new PoolFib(n - 1);
      first.fork();
      long second = new PoolFib(n - 2).compute();
      return first.join() + second;
    }
  }

  private static long pairs(long steps) {
    long sum = 0;
    for (int i = 0; i < PAIRS; i++) {
      sum += job(steps) + job(steps);
    }
    return sum;
  }

  private long forkedPairs(long steps) {
    LongFork all =
        (forks, each) -> {
          long sum = 0;
          for (int i = 0; i < PAIRS; i++) {
            LongFrame first = forks.fork(JOB, each);
            long second = job(each);
            sum += forks.join(first) + second;
          }
          return sum;
        };
    try (TaskScope<Long> scope = fairlead.scope()) {
      return scope.forkJoin(all, steps);
    }
  }

  /** Steps that each need the one before: a compiler can neither drop nor speed them up. */
  private static long job(long steps) {
    long x = steps;
    for (long i = 0; i < steps; i++) {
      x = x * 6_364_136_223_846_793_005L + 1_442_695_040_888_963_407L;
    }
    return x;
  }

  private static long stepsOfAMicrosecond() {
    long steps = 1_000;
    long fastest = Long.MAX_VALUE;
    long sum = 0;
    for (int round = 0; round < 200; round++) {
      long start = System.nanoTime();
      for (int i = 0; i < 100; i++) {
        sum += job(steps);
      }
      fastest = Math.min(fastest, System.nanoTime() - start);
    }
    require(sum != 1);
    return Math.max(1, steps * 100_000 / fastest);
  }

  private double[][] alternate(LongSupplier... variants) {
    double[][] nanos = new double[variants.length][rounds];
    for (int round = -WARM_UP; round < rounds; round++) {
      for (int v = 0; v < variants.length; v++) {
        long start = System.nanoTime();
        long result = variants[v].getAsLong();
        long end = System.nanoTime();
        require(result != 1); // so that it is computed
        if (round >= 0) {
          nanos[v][round] = end - start;
        }
      }
    }
    return nanos;
  }

  private static void require(boolean holds) {
    if (!holds) {
      throw new AssertionError("no probe gives this result");
    }
  }

  private static double bytes(LongSupplier body) {
    var threads = (com.sun.management.ThreadMXBean) ManagementFactory.getThreadMXBean();
    long before = threads.getTotalThreadAllocatedBytes();
    require(body.getAsLong() != 1);
    return threads.getTotalThreadAllocatedBytes() - before;
  }
}
