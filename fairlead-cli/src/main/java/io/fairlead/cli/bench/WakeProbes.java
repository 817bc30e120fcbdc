package io.fairlead.cli.bench;

import io.fairlead.runtime.Fairlead;
import io.fairlead.task.Completion;
import io.fairlead.task.Engine;
import io.fairlead.task.EngineLimits;
import io.fairlead.task.Owner;
import io.fairlead.task.Role;
import io.fairlead.task.TaskScope;
import io.fairlead.task.ThreadRule;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.function.DoubleSupplier;
import org.jspecify.annotations.Nullable;

/**
 * What it costs to wake, to wait, and to be many; nanoseconds unless said otherwise. Each probe
 * warms itself up, and gives its samples in the order they were taken.
 */
final class WakeProbes {
  private static final int WARM_UP = 20_000;

  /** Turns of a ping-pong until what they run is compiled as it will be: some 0.3 s. */
  private static final int WARM_UP_TURNS = 400_000;

  /** Rounds of a pair until what they run is compiled as it will be: some half a second. */
  private static final int WARM_UP_PAIRS = 100_000;

  /**
   * Crowds before the one that is measured. A parked task keeps its frames, and those of code that
   * is not compiled yet are several times as large.
   */
  private static final int WARM_UP_CROWDS = 5;

  private static final int WARM_UP_CROWD = 100_000;

  /** Threads that have helped in a burst end when they were idle for some seconds. */
  private static final long AT_REST_NANOS = 10_000_000_000L;

  /** Until then two compiler threads still share the two cores with what is measured. */
  private static final int WARM_UP_SPAWNS = 150_000;

  private static final long BUSY_NANOS_MAX = 20_000_000_000L;

  private final Fairlead fairlead;
  private final boolean quick;

  WakeProbes(Fairlead fairlead, boolean quick) {
    this.fairlead = fairlead;
    this.quick = quick;
  }

  /** One wake after the other between two tasks: the halves of round trips, in batches. */
  double[] pingPong() {
    int batch = 2_000;
    double[] samples = new double[quick ? 50 : 200];
    for (int i = -WARM_UP_TURNS / batch; i < samples.length; i++) {
      double nanos = pingPong(batch) / (2.0 * batch);
      if (i >= 0) {
        samples[i] = nanos;
      }
    }
    return samples;
  }

  private double pingPong(int rounds) {
    Turns there = new Turns(rounds);
    Turns back = new Turns(rounds);
    try (TaskScope<Long> scope = fairlead.scope()) {
      scope.fork(
          () -> {
            for (int i = 0; i < rounds; i++) {
              there.await(i);
              back.give(i);
            }
            return 0L;
          });
      scope.fork(
          () -> {
            long start = System.nanoTime();
            for (int i = 0; i < rounds; i++) {
              there.give(i);
              back.await(i);
            }
            return System.nanoTime() - start;
          });
      return scope.join().stream().mapToLong(Long::longValue).max().orElseThrow();
    }
  }

  /** A completion for each turn, made before the clock runs. */
  private record Turns(List<Completion.Source<@Nullable Void>> turns) {
    Turns(int count) {
      this(new ArrayList<>(count));
      for (int i = 0; i < count; i++) {
        turns.add(Completion.source());
      }
    }

    void give(int turn) {
      turns.get(turn).complete(null);
    }

    void await(int turn) {
      turns.get(turn).completion().await();
    }
  }

  /**
   * From the completion of what a task is parked on until that task runs.
   *
   * @param pairs wakers with a waiter each, at the same time
   * @param busyNanos how long a waker computes on before it parks itself
   */
  double[] notifying(int pairs, long busyNanos) {
    int rounds = quick ? 2_000 : 20_000;
    int warmUp = WARM_UP_PAIRS / pairs;
    List<Double> samples = new ArrayList<>();
    try (TaskScope<double[]> scope = fairlead.scope()) {
      for (int pair = 0; pair < pairs; pair++) {
        Exchange exchange = new Exchange(warmUp + rounds / pairs, busyNanos);
        scope.fork(exchange::wake);
        scope.fork(() -> exchange.wait(warmUp));
      }
      scope.join().forEach(each -> addAll(samples, each));
    }
    return samples.stream().mapToDouble(Double::doubleValue).toArray();
  }

  private static void addAll(List<Double> samples, double[] more) {
    for (double each : more) {
      samples.add(each);
    }
  }

  private static final class Exchange {
    private final int rounds;
    private final long busyNanos;
    private final Turns wakes;
    private final Turns parked;

    /** Written before the wake that hands it over. */
    private long woken;

    Exchange(int rounds, long busyNanos) {
      this.rounds = rounds;
      this.busyNanos = busyNanos;
      this.wakes = new Turns(rounds);
      this.parked = new Turns(rounds);
    }

    double[] wake() {
      for (int i = 0; i < rounds; i++) {
        parked.await(i);
        letItPark();
        woken = System.nanoTime();
        wakes.give(i);
        compute(busyNanos);
      }
      return new double[0];
    }

    /** The waiter says that it will park, and then needs a moment until it has. */
    @SuppressWarnings("ThreadPriorityCheck") // makes room on this carrier, and promises nothing
    private static void letItPark() {
      Thread.yield();
      compute(3_000);
    }

    double[] wait(int warmUp) {
      double[] samples = new double[rounds - warmUp];
      for (int i = 0; i < rounds; i++) {
        parked.give(i);
        wakes.await(i);
        long now = System.nanoTime();
        if (i >= warmUp) {
          samples[i - warmUp] = now - woken;
        }
      }
      return samples;
    }
  }

  /** Keeps the processor for so long. */
  static void compute(long nanos) {
    long end = System.nanoTime() + nanos;
    while (System.nanoTime() < end) {
      Thread.onSpinWait();
    }
  }

  /**
   * Forks of a task that really suspends, one at a time: ours, then as bare virtual threads, of a
   * parent that is one too. Those have the JDK's scheduler, as without us; and once more ours,
   * which they inherit where the parent is a task.
   *
   * @return our nanoseconds for each, those on the JDK's scheduler, those on ours
   */
  double[][] spawnAndBlock() {
    int batch = 500;
    int rounds = quick ? 20 : 60;
    double[][] samples = new double[3][rounds];
    for (int i = -WARM_UP_SPAWNS / batch; i < rounds; i++) {
      double ours = inTask(() -> blockInScopes(batch));
      double theirs = inThread(() -> blockInThreads(batch));
      double inherited = inTask(() -> blockInThreads(batch));
      if (i >= 0) {
        samples[0][i] = ours / batch;
        samples[1][i] = theirs / batch;
        samples[2][i] = inherited / batch;
      }
    }
    return samples;
  }

  private void blockInScopes(int count) {
    for (int i = 0; i < count; i++) {
      Completion.Source<@Nullable Void> begun = Completion.source();
      Completion.Source<@Nullable Void> value = Completion.source();
      try (TaskScope<@Nullable Void> scope = fairlead.scope()) {
        scope.fork(() -> blocks(begun, value));
        begun.completion().await();
        value.complete(null);
        scope.join();
      }
    }
  }

  private static void blockInThreads(int count) throws InterruptedException {
    for (int i = 0; i < count; i++) {
      Completion.Source<@Nullable Void> begun = Completion.source();
      Completion.Source<@Nullable Void> value = Completion.source();
      Thread child = Thread.ofVirtual().start(() -> blocks(begun, value));
      begun.completion().await();
      value.complete(null);
      child.join();
    }
  }

  private static @Nullable Void blocks(
      Completion.Source<@Nullable Void> begun, Completion.Source<@Nullable Void> value) {
    begun.complete(null);
    value.completion().await();
    return null;
  }

  /** A thousand that are parked at once. As {@link #spawnAndBlock}. */
  double[][] manyParked() {
    int count = 1_000;
    int rounds = quick ? 20 : 100;
    double[][] samples = new double[3][rounds];
    for (int i = -WARM_UP_SPAWNS / count; i < rounds; i++) {
      double ours = inTask(() -> manyInScope(count));
      double theirs = inThread(() -> manyInThreads(count));
      double inherited = inTask(() -> manyInThreads(count));
      if (i >= 0) {
        samples[0][i] = ours / count;
        samples[1][i] = theirs / count;
        samples[2][i] = inherited / count;
      }
    }
    return samples;
  }

  private void manyInScope(int count) {
    Crowd crowd = new Crowd(count);
    try (TaskScope<@Nullable Void> scope = fairlead.scope()) {
      for (int i = 0; i < count; i++) {
        scope.fork(crowd::park);
      }
      crowd.release();
      scope.join();
    }
  }

  private static void manyInThreads(int count) throws InterruptedException {
    Crowd crowd = new Crowd(count);
    List<Thread> threads = new ArrayList<>(count);
    for (int i = 0; i < count; i++) {
      threads.add(Thread.ofVirtual().start(crowd::park));
    }
    crowd.release();
    for (Thread thread : threads) {
      thread.join();
    }
  }

  /** Tasks that all park on one completion. */
  private static final class Crowd {
    private final AtomicInteger missing;
    private final Completion.Source<@Nullable Void> allThere = Completion.source();
    private final Completion.Source<@Nullable Void> gate = Completion.source();

    Crowd(int size) {
      missing = new AtomicInteger(size);
    }

    @Nullable Void park() {
      if (missing.decrementAndGet() == 0) {
        allThere.complete(null);
      }
      gate.completion().await();
      return null;
    }

    void release() {
      allThere.completion().await();
      gate.complete(null);
    }
  }

  /** What a task of ours does. */
  interface Body {
    void run() throws Exception;
  }

  /** The nanoseconds of a body that a virtual thread runs which is none of ours. */
  private static double inThread(Body body) {
    Completion.Source<Long> nanos = Completion.source();
    Thread.ofVirtual()
        .start(
            () -> {
              long start = System.nanoTime();
              try {
                body.run();
                nanos.complete(System.nanoTime() - start);
              } catch (Exception failure) {
                nanos.fail(failure);
              }
            });
    return nanos.completion().await();
  }

  /** The nanoseconds of a body that a task of ours runs. */
  double inTask(Body body) {
    try (TaskScope<Long> scope = fairlead.scope()) {
      scope.fork(
          () -> {
            long start = System.nanoTime();
            body.run();
            return System.nanoTime() - start;
          });
      return scope.join().getFirst();
    }
  }

  /**
   * A value back from an owner's thread, asked for by a task.
   *
   * @param restNanos how long the owner is left alone before each
   */
  double[] shifted(long restNanos) {
    int rounds = restNanos > 0 ? (quick ? 200 : 1_000) : (quick ? 5_000 : 50_000);
    int warmUp = restNanos > 0 ? 100 : WARM_UP;
    try (Owner owner = fairlead.tasks().owner("bench", Role.OWNER);
        TaskScope<double[]> scope = fairlead.scope()) {
      scope.fork(
          () -> {
            double[] samples = new double[rounds];
            for (int i = -warmUp; i < rounds; i++) {
              if (restNanos > 0) {
                LockSupport.parkNanos(restNanos);
              }
              long start = System.nanoTime();
              owner.call(() -> 42).await();
              if (i >= 0) {
                samples[i] = System.nanoTime() - start;
              }
            }
            return samples;
          });
      return scope.join().getFirst();
    }
  }

  /**
   * What the operating system's wake costs: from the unpark of a plain thread until its answer is
   * seen by who spins for it. As {@link #shifted}, without anything of ours.
   *
   * @param restNanos how long the thread is left alone before each
   */
  double[] threadWakes(long restNanos) {
    double[] samples = new double[quick ? 200 : 1_000];
    AtomicInteger asked = new AtomicInteger();
    AtomicInteger answered = new AtomicInteger();
    int last = 100 + samples.length;
    Thread answers =
        Thread.ofPlatform()
            .daemon()
            .start(
                () -> {
                  for (int turn = 1; turn <= last; turn++) {
                    while (asked.get() < turn) {
                      LockSupport.park();
                    }
                    answered.set(turn);
                  }
                });
    for (int turn = 1; turn <= last; turn++) {
      LockSupport.parkNanos(restNanos);
      long start = System.nanoTime();
      asked.set(turn);
      LockSupport.unpark(answers);
      while (answered.get() < turn) {
        Thread.onSpinWait();
      }
      if (turn > last - samples.length) {
        samples[turn - 1 - (last - samples.length)] = System.nanoTime() - start;
      }
    }
    return samples;
  }

  /** A value back from a command, asked for by a task that runs on the owner's own thread. */
  double[] affine() {
    int rounds = quick ? 5_000 : 50_000;
    try (Owner owner = fairlead.tasks().owner("bench", Role.OWNER)) {
      return owner
          .affine(
              () -> {
                double[] samples = new double[rounds];
                for (int i = -WARM_UP; i < rounds; i++) {
                  long start = System.nanoTime();
                  Completion.Source<Integer> value = Completion.source();
                  owner.trySubmit(() -> value.complete(42));
                  value.completion().await();
                  if (i >= 0) {
                    samples[i] = System.nanoTime() - start;
                  }
                }
                return samples;
              })
          .await();
    }
  }

  /** How late a waiter runs that another thread wakes while tasks keep all carriers busy. */
  double[] whileBusy(Runnable busy) {
    return whileBusy(busy, 0, WakeProbes::late);
  }

  /**
   * What a task measures while others keep all carriers busy.
   *
   * @param busy what they do, over and over
   * @param warmUpNanos for how long at least it measures before the samples are taken
   * @param sample one measurement
   */
  double[] whileBusy(Runnable busy, long warmUpNanos, DoubleSupplier sample) {
    int rounds = quick ? 200 : 2_000;
    AtomicBoolean stop = new AtomicBoolean();
    double[] samples = new double[rounds];
    long start = System.nanoTime();
    try (TaskScope<@Nullable Void> scope = fairlead.scope()) {
      for (int i = 0; i < Runtime.getRuntime().availableProcessors(); i++) {
        scope.fork(
            () -> {
              // the limit: where such loops leave no carrier to the others, nobody would say stop
              while (!stop.get() && System.nanoTime() - start < BUSY_NANOS_MAX) {
                busy.run();
              }
              return null;
            });
      }
      scope.fork(
          () -> {
            try {
              for (int i = 0; i < rounds / 4 || System.nanoTime() - start < warmUpNanos; i++) {
                var _ = sample.getAsDouble();
              }
              for (int i = 0; i < rounds; i++) {
                samples[i] = sample.getAsDouble();
              }
            } finally {
              stop.set(true);
            }
            return null;
          });
      scope.join();
    }
    return samples;
  }

  /** The same of a plain thread that waits: what the operating system's wake costs there. */
  double[] threadWhileBusy(Runnable busy) {
    return whileBusy(busy, 0, WakeProbes::threadLate);
  }

  /** A platform thread completes what this task is parked on. */
  private static double late() {
    Completion.Source<Long> source = Completion.source();
    completeSoon(source);
    long completed = source.completion().await();
    return System.nanoTime() - completed;
  }

  /** A platform thread completes what another one is parked on. */
  private static double threadLate() {
    Completion.Source<Double> nanos = Completion.source();
    Thread.ofPlatform()
        .daemon()
        .start(
            () -> {
              Completion.Source<Long> source = Completion.source();
              completeSoon(source);
              long completed = source.completion().await();
              nanos.complete((double) (System.nanoTime() - completed));
            });
    return nanos.completion().await();
  }

  private static void completeSoon(Completion.Source<Long> source) {
    Thread.ofPlatform()
        .daemon()
        .start(
            () -> {
              LockSupport.parkNanos(200_000);
              source.complete(System.nanoTime());
            });
  }

  /** How long an unrelated task takes to be forked and joined while calls block in an engine. */
  double[] besideBlockedCalls(int calls) {
    int rounds = quick ? 200 : 1_000;
    CountDownLatch end = new CountDownLatch(1);
    double[] samples = new double[rounds];
    try (Engine<Object> engine =
            fairlead.engine("blocks", ThreadRule.OWNER_ONLY, Object::new, EngineLimits.of(calls));
        TaskScope<@Nullable Void> scope = fairlead.scope()) {
      for (int i = 0; i < calls; i++) {
        scope.fork(
            () ->
                engine.call(
                    0,
                    instance -> {
                      end.await();
                      return null;
                    }));
      }
      scope.fork(
          () -> {
            try {
              for (int i = -rounds / 4; i < rounds; i++) {
                LockSupport.parkNanos(200_000);
                double nanos = forkAndJoin();
                if (i >= 0) {
                  samples[i] = nanos;
                }
              }
            } finally {
              end.countDown();
            }
            return null;
          });
      scope.join();
    }
    return samples;
  }

  private double forkAndJoin() {
    long start = System.nanoTime();
    try (TaskScope<Integer> scope = fairlead.scope()) {
      scope.fork(() -> 1);
      scope.join();
    }
    return System.nanoTime() - start;
  }

  /**
   * Tasks that are all parked at once.
   *
   * @return bytes of heap for each, and the platform threads of the process
   */
  double[] parked(int count) {
    for (int i = 0; i < WARM_UP_CROWDS; i++) {
      parkedOnce(WARM_UP_CROWD, false);
    }
    return parkedOnce(count, true);
  }

  private double[] parkedOnce(int count, boolean measured) {
    long before = measured ? heapInUse() : 0;
    double[] result = new double[2];
    try (TaskScope<@Nullable Void> scope = fairlead.scope()) {
      Crowd crowd = new Crowd(count);
      for (int i = 0; i < count; i++) {
        scope.fork(crowd::park);
      }
      crowd.allThere.completion().await();
      if (measured) {
        result[0] = (heapInUse() - before) / (double) count;
        result[1] = threadsAtRest();
      }
      crowd.gate.complete(null);
      scope.join();
    }
    return result;
  }

  /** The fewest that were seen until it is sure that no more will end. */
  private static int threadsAtRest() {
    int least = Integer.MAX_VALUE;
    for (long end = System.nanoTime() + AT_REST_NANOS; System.nanoTime() - end < 0; ) {
      least = Math.min(least, ManagementFactory.getThreadMXBean().getThreadCount());
      LockSupport.parkNanos(AT_REST_NANOS / 100);
    }
    return least;
  }

  /** Bytes of heap that are reachable now. */
  static long heapInUse() {
    for (int i = 0; i < 3; i++) {
      System.gc();
    }
    return ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed();
  }
}
