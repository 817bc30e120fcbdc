package io.fairlead.lab.task;

import io.fairlead.task.Forks;
import io.fairlead.task.LongFork;
import io.fairlead.task.LongFrame;
import io.fairlead.task.TaskConfig;
import io.fairlead.task.TaskRuntime;
import io.fairlead.task.TaskScope;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.Locale;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.RecursiveTask;
import java.util.function.LongSupplier;

/**
 * What forks cost, against plain calls and ForkJoinPool, alternating in one process; medians.
 *
 * <pre>
 * java ... io.fairlead.lab.task.ForkFigures [n of pfib] [rounds]
 * </pre>
 *
 * Once with {@code -XX:ActiveProcessorCount=1} for one thread and once without; a thief is alive in
 * both, but finds no processor in the first.
 */
public final class ForkFigures {
  private static final LongFork FIB = ForkFigures::fib;
  private static final LongFork WORK = (forks, steps) -> work(steps);

  private final TaskRuntime runtime;
  private final PrintStream out;
  private final int n;
  private final int rounds;

  private ForkFigures(TaskRuntime runtime, PrintStream out, int n, int rounds) {
    this.runtime = runtime;
    this.out = out;
    this.n = n;
    this.rounds = rounds;
  }

  /** Prints all figures. */
  public static void main(String[] args) {
    int n = args.length > 0 ? Integer.parseInt(args[0]) : 31;
    int rounds = args.length > 1 ? Integer.parseInt(args[1]) : 15;
    try (TaskRuntime runtime = TaskRuntime.open(TaskConfig.DEFAULT)) {
      ForkFigures figures = new ForkFigures(runtime, System.out, n, rounds);
      figures.inTask(figures::print);
    }
  }

  /** As a child with a thread of its own, so that it runs on a carrier. */
  private void inTask(Runnable body) {
    try (TaskScope<Boolean> scope = runtime.scope()) {
      scope.fork(
          () -> {
            body.run();
            return true;
          });
      scope.join();
    }
  }

  private void print() {
    out.printf(
        Locale.ROOT,
        "processors %d, pfib(%d), %d rounds%n",
        Runtime.getRuntime().availableProcessors(),
        n,
        rounds);
    recursion();
    fine();
    scopes();
  }

  private void recursion() {
    ForkJoinPool pool = new ForkJoinPool(Runtime.getRuntime().availableProcessors());
    double forks = forksOf(n);
    double[][] nanos =
        alternate(() -> serial(n), () -> framed(n), () -> pool.invoke(new PoolFib(n)));
    pool.shutdown();
    double serial = median(nanos[0]);
    double framed = median(nanos[1]);
    double pooled = median(nanos[2]);
    out.printf(
        Locale.ROOT,
        "pfib: serial %.2f ms, frames %.2f ms, ForkJoinPool %.2f ms; added per fork+join %.2f ns;"
            + " over ForkJoinPool %.3f; bytes per fork %.3f%n",
        serial / 1e6,
        framed / 1e6,
        pooled / 1e6,
        (framed - serial) / forks,
        framed / pooled,
        bytes(() -> framed(n)) / forks);
  }

  private void fine() {
    long steps = stepsOfAMicrosecond();
    int pairs = 20_000;
    double[][] nanos =
        alternate(
            () -> {
              long sum = 0;
              for (int i = 0; i < pairs; i++) {
                sum += work(steps) + work(steps);
              }
              return sum;
            },
            () -> {
              try (TaskScope<Long> scope = runtime.scope()) {
                return scope.forkJoin(
                    (LongFork)
                        (frames, ignored) -> {
                          long sum = 0;
                          for (int i = 0; i < pairs; i++) {
                            LongFrame first = frames.fork(WORK, steps);
                            long second = work(steps);
                            sum += frames.join(first) + second;
                          }
                          return sum;
                        },
                    0);
              }
            });
    double serial = median(nanos[0]) / pairs;
    double framed = median(nanos[1]) / pairs;
    out.printf(
        Locale.ROOT,
        "fine: pair of %.2f µs jobs: serial %.3f µs, forked %.3f µs, ratio %.3f%n",
        serial / 2e3,
        serial / 1e3,
        framed / 1e3,
        framed / serial);
  }

  private void scopes() {
    for (int children : new int[] {1, 2, 10, 100}) {
      int scopes = 200_000 / children;
      LongSupplier body =
          () -> {
            long sum = 0;
            for (int i = 0; i < scopes; i++) {
              try (TaskScope<Long> scope = runtime.scope()) {
                for (int k = 0; k < children; k++) {
                  scope.fork(() -> null);
                }
                sum += scope.join().size();
              }
            }
            return sum;
          };
      LongSupplier empty =
          () -> {
            long sum = 0;
            for (int i = 0; i < scopes; i++) {
              try (TaskScope<Long> scope = runtime.scope()) {
                sum += scope.join().size();
              }
            }
            return sum;
          };
      double[][] nanos = alternate(body, empty);
      double forks = (double) scopes * children;
      out.printf(
          Locale.ROOT,
          "scope of %d: per fork+join %.1f ns (%.1f with its share of the scope), %.1f B (%.1f)%n",
          children,
          (median(nanos[0]) - median(nanos[1])) / forks,
          median(nanos[0]) / forks,
          (bytes(body) - bytes(empty)) / forks,
          bytes(body) / forks);
    }
  }

  // --- what is measured -------------------------------------------------------------------------

  private long framed(int argument) {
    try (TaskScope<Long> scope = runtime.scope()) {
      return scope.forkJoin(FIB, argument);
    }
  }

  private static long fib(Forks forks, long argument) {
    if (argument < 2) {
      return argument;
    }
    LongFrame first = forks.fork(FIB, argument - 1);
    long second = fib(forks, argument - 2);
    return forks.join(first) + second;
  }

  private static long serial(long argument) {
    return argument < 2 ? argument : serial(argument - 1) + serial(argument - 2);
  }

  @SuppressWarnings("serial") // never serialised
  private static final class PoolFib extends RecursiveTask<Long> {
    private final int argument;

    PoolFib(int argument) {
      this.argument = argument;
    }

    @Override
    protected Long compute() {
      if (argument < 2) {
        return (long) argument;
      }
      PoolFib first = new PoolFib(argument - 1);
      first.fork();
      long second = new PoolFib(argument - 2).compute();
      return first.join() + second;
    }
  }

  private static long work(long steps) {
    long x = steps;
    for (long i = 0; i < steps; i++) {
      x = x * 6_364_136_223_846_793_005L + 1_442_695_040_888_963_407L;
    }
    return x;
  }

  private static long stepsOfAMicrosecond() {
    long steps = 1_000;
    long fastest = Long.MAX_VALUE;
    for (int round = 0; round < 200; round++) {
      long start = System.nanoTime();
      long sum = 0;
      for (int i = 0; i < 100; i++) {
        sum += work(steps);
      }
      long nanos = System.nanoTime() - start + (sum == 1 ? 1 : 0);
      fastest = Math.min(fastest, nanos);
    }
    return Math.max(1, steps * 100_000 / fastest);
  }

  // --- how --------------------------------------------------------------------------------------

  private static double forksOf(int argument) {
    double[] calls = new double[Math.max(2, argument + 1)];
    for (int i = 2; i <= argument; i++) {
      calls[i] = 1 + calls[i - 1] + calls[i - 2];
    }
    return calls[argument];
  }

  private double[][] alternate(LongSupplier... variants) {
    double[][] nanos = new double[variants.length][rounds];
    long sum = 0;
    for (int round = -5; round < rounds; round++) {
      for (int v = 0; v < variants.length; v++) {
        long start = System.nanoTime();
        sum += variants[v].getAsLong();
        if (round >= 0) {
          nanos[v][round] = System.nanoTime() - start;
        } else {
          sum++;
        }
      }
    }
    if (sum == 42) {
      out.println("a sum that keeps the compiler from dropping the work");
    }
    return nanos;
  }

  private static double median(double[] values) {
    double[] sorted = values.clone();
    Arrays.sort(sorted);
    return sorted[sorted.length / 2];
  }

  private static double bytes(LongSupplier body) {
    var threads = (com.sun.management.ThreadMXBean) ManagementFactory.getThreadMXBean();
    long before = threads.getTotalThreadAllocatedBytes();
    var _ = body.getAsLong();
    return threads.getTotalThreadAllocatedBytes() - before;
  }
}
