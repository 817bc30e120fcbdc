package io.fairlead.cli.bench;

import io.fairlead.memory.Device;
import io.fairlead.memory.DeviceBuffer;
import io.fairlead.memory.Hold;
import io.fairlead.memory.MemoryRollbackException;
import io.fairlead.memory.MemoryStats;
import io.fairlead.memory.Oom;
import io.fairlead.runtime.Fairlead;
import io.fairlead.task.ForkOptions;
import io.fairlead.task.ScopeOptions;
import io.fairlead.task.TaskScope;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;

/**
 * Tasks that keep memory and want more than there is: whether nobody gives way without need, and
 * how soon somebody does where it is needed. What a device counts since it was opened it counts for
 * one probe.
 */
final class OomProbes {
  private static final long LOOK_NANOS = 20_000;

  private final Fairlead fairlead;
  private final Device device;
  private final long limit;

  /** On the first device, where nobody else may have memory. */
  OomProbes(Fairlead fairlead) {
    this.fairlead = fairlead;
    this.device = fairlead.device();
    this.limit = device.memory().limit();
  }

  // --- work that fits alone and not together ----------------------------------------------------

  private static final int WORK = 64;
  private static final int AT_ONCE = 16;
  private static final int STEPS_MAX = 50;

  /**
   * Pieces of work, some of them at once, from a seed, each of which allocates, writes, holds and
   * closes, and has at most what the device has: all of them end.
   */
  MemoryStats.Waits pieces(long seed) {
    AtomicInteger next = new AtomicInteger();
    try (TaskScope<Integer> scope = fairlead.scope()) {
      for (int i = 0; i < AT_ONCE; i++) {
        scope.fork(
            eager("worker " + i).priority(i % 2),
            () -> {
              int done = 0;
              for (int n = next.getAndIncrement(); n < WORK; n = next.getAndIncrement()) {
                long own = 1_000_003 * seed + n;
                done += Oom.retry(device, () -> new Piece(own).run());
              }
              return done;
            });
      }
      scope.join();
    }
    return device.memory().waits();
  }

  /** One of them. Used by one task. */
  private final class Piece {
    private final SplittableRandom random;
    private final List<DeviceBuffer> buffers = new ArrayList<>();
    private final List<Hold> holds = new ArrayList<>();
    private long bytes;

    Piece(long seed) {
      this.random = new SplittableRandom(seed);
    }

    int run() {
      try {
        int steps = random.nextInt(1, STEPS_MAX);
        for (int i = 0; i < steps; i++) {
          step(i);
        }
        return 1;
      } finally {
        holds.forEach(Hold::close);
        buffers.forEach(DeviceBuffer::close);
      }
    }

    private void step(int number) {
      int kind = random.nextInt(10);
      if (kind < 5 || buffers.isEmpty()) {
        allocate();
      } else if (kind < 7) {
        any().fill((byte) number);
        device.stream().reached().await(); // so that others come between
      } else if (kind < 9) {
        holds.add(any().hold());
      } else {
        closeLast();
      }
    }

    private DeviceBuffer any() {
      return buffers.get(random.nextInt(buffers.size()));
    }

    private void allocate() {
      long size = random.nextLong(1, limit / 4);
      long more = size + MemoryProbes.SMALLEST; // it may be rounded up
      if (bytes + more <= limit) {
        buffers.add(device.allocate(size));
        bytes += more;
      }
    }

    private void closeLast() {
      holds.forEach(Hold::close);
      holds.clear();
      DeviceBuffer last = buffers.removeLast();
      bytes -= last.bytes() + MemoryProbes.SMALLEST;
      last.close();
    }
  }

  // --- how soon ---------------------------------------------------------------------------------

  /**
   * Two tries hold two fifths each and want two more: from the second one's asking until it knows
   * that it has to give way, in nanoseconds, in each round.
   */
  double[] found(int rounds) {
    double[] samples = new double[rounds];
    for (int i = 0; i < rounds; i++) {
      samples[i] = found();
    }
    return samples;
  }

  private double found() {
    AtomicLong nanos = new AtomicLong();
    CountDownLatch firstHolds = new CountDownLatch(1);
    CountDownLatch secondHolds = new CountDownLatch(1);
    try (TaskScope<Long> scope = fairlead.scope()) {
      scope.fork(
          eager("first"),
          () ->
              Oom.retry(
                  device,
                  () -> {
                    try (DeviceBuffer own = device.allocate(2 * limit / 5);
                        Hold hold = own.hold()) {
                      firstHolds.countDown();
                      awaitQuietly(secondHolds);
                      return wantMore(hold);
                    }
                  }));
      scope.fork(
          eager("second"),
          () -> {
            firstHolds.await();
            return Oom.retry(device, () -> second(secondHolds, nanos));
          });
      scope.join();
    }
    if (nanos.get() == 0) {
      throw new IllegalStateException("the younger of two tries had not to give way");
    }
    return nanos.get();
  }

  private long second(CountDownLatch holds, AtomicLong nanos) {
    try (DeviceBuffer own = device.allocate(2 * limit / 5);
        Hold hold = own.hold()) {
      boolean isFirst = holds.getCount() > 0;
      holds.countDown();
      while (isFirst && device.memory().waits().now() == 0) {
        LockSupport.parkNanos(LOOK_NANOS);
      }
      long since = System.nanoTime();
      try {
        return wantMore(hold);
      } catch (MemoryRollbackException told) {
        nanos.compareAndSet(0, System.nanoTime() - since);
        throw told;
      }
    }
  }

  private long wantMore(Hold hold) {
    try (hold;
        DeviceBuffer more = device.allocate(2 * limit / 5)) {
      return more.bytes();
    }
  }

  // --- very many --------------------------------------------------------------------------------

  /** Of the limit: what each keeps, and wants besides. */
  private static final int SHARE = 22;

  /** Looks at how many wait are rare: each takes the budget's lock. */
  private static final long WAITING_NANOS = 1_000_000;

  /** Each part of it takes seconds. */
  private static final Duration MANY_LIMIT = Duration.ofMinutes(1);

  /**
   * So many tries wait at once, since one task holds all that there is; then that one goes, and
   * each of them holds a share and wants another one. All of them end.
   *
   * @return the nanoseconds from there on
   * @throws IllegalStateException if they do not: with what the device knows of them
   */
  long many(int tasks) {
    CountDownLatch taken = new CountDownLatch(1);
    CountDownLatch allWait = new CountDownLatch(1);
    ScopeOptions options = ScopeOptions.DEFAULT.deadline(MANY_LIMIT.multipliedBy(2));
    try (TaskScope<Integer> scope = fairlead.scope(options)) {
      scope.fork(
          eager("holder"),
          () -> {
            try (DeviceBuffer all = device.allocate(limit);
                Hold hold = all.hold()) {
              taken.countDown();
              allWait.await();
              return hold == null ? 0 : 1;
            } finally {
              taken.countDown(); // nobody waits for who has failed
            }
          });
      awaitQuietly(taken);
      for (int i = 0; i < tasks; i++) {
        scope.fork(eager("task"), () -> Oom.retry(device, this::keepAndWant));
      }
      long begun = System.nanoTime();
      while (device.memory().waits().now() < tasks) {
        if (System.nanoTime() - begun > MANY_LIMIT.toNanos()) {
          throw new IllegalStateException("not all " + tasks + " wait; " + device.memory());
        }
        LockSupport.parkNanos(WAITING_NANOS);
      }
      long start = System.nanoTime();
      allWait.countDown();
      try {
        scope.join();
      } catch (RuntimeException late) {
        throw new IllegalStateException("not all " + tasks + " end; " + device.memory(), late);
      }
      return System.nanoTime() - start;
    }
  }

  private int keepAndWant() {
    try (DeviceBuffer own = device.allocate(limit / SHARE);
        Hold hold = own.hold();
        DeviceBuffer other = device.allocate(limit / SHARE)) {
      other.fill((byte) 1);
      return hold == null ? 0 : 1;
    }
  }

  private static ForkOptions eager(String name) {
    return ForkOptions.named(name).eager(true);
  }

  private static void awaitQuietly(CountDownLatch latch) {
    try {
      latch.await();
    } catch (InterruptedException e) {
      throw new IllegalStateException("interrupted while it was measured", e);
    }
  }
}
