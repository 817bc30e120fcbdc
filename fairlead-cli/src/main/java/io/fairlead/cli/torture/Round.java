package io.fairlead.cli.torture;

import io.fairlead.comm.Comm;
import io.fairlead.comm.CommConfig;
import io.fairlead.comm.InProcess;
import io.fairlead.memory.Device;
import io.fairlead.memory.Leak;
import io.fairlead.memory.MemoryConfig;
import io.fairlead.memory.MemoryFailures;
import io.fairlead.memory.MemoryPool;
import io.fairlead.memory.MemoryStats;
import io.fairlead.memory.SpillConfig;
import io.fairlead.runtime.Fairlead;
import io.fairlead.runtime.FairleadConfig;
import io.fairlead.task.ForkOptions;
import io.fairlead.task.ScopeOptions;
import io.fairlead.task.Task;
import io.fairlead.task.TaskScope;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Queue;
import java.util.SplittableRandom;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * One seed: a device with little memory is opened, many tasks use it, what they leave behind is
 * looked for, and it is closed. Which pool there is and what fails is drawn from the seed, too; the
 * tasks do what it says, but when each of them runs it does not say.
 *
 * <p>Used by one thread, which waits; what tasks ask for is for any.
 */
final class Round {
  /** How a round is made. */
  record Plan(String device, long memory, Path directory, int actors, int steps) {
    /** With those that send and receive, as many streams as the goal names: 64. */
    static final int ACTORS = 56;

    static final int STEPS = 60;
  }

  private static final int LANES = 4;
  private static final int MESSAGES = 40;
  private static final int PRIORITIES = 4;

  /** Of the device's memory: what there is below it before files are needed. */
  private static final long HOST_SHARE = 2;

  private static final long DISK_BYTES = 2L << 30;
  private static final Duration WAIT = Duration.ofMinutes(4);

  /** Longer than any time during which the disk is full on purpose. */
  private static final Duration GRACE = Duration.ofMinutes(1);

  private static final long SETTLE_NANOS = 30_000_000_000L;
  private static final long LOOK_NANOS = 1_000_000;

  private final long seed;
  private final Plan plan;
  private final Tally tally = new Tally();
  private final Leased leased = new Leased();
  private final Queue<Task> actors = new ConcurrentLinkedQueue<>();
  private final AtomicInteger atWork = new AtomicInteger();
  private final AtomicReference<@Nullable TortureFailedException> broken = new AtomicReference<>();
  private final Fairlead fairlead;
  private final TortureKernels kernels;

  private Round(long seed, Plan plan, Fairlead fairlead) {
    this.seed = seed;
    this.plan = plan;
    this.fairlead = fairlead;
    this.kernels = fairlead.enter("load", 0, () -> TortureKernels.load(fairlead.device()));
  }

  /**
   * All of it.
   *
   * @param opened gets the device before anything is done
   * @throws TortureFailedException if something was wrong
   */
  static Tally run(long seed, Plan plan, Consumer<Device> opened) {
    List<Leak> leaks = new CopyOnWriteArrayList<>();
    Tally tally;
    try (Fairlead fairlead = Fairlead.open(config(seed, plan, leaks))) {
      opened.accept(fairlead.device());
      Round round = new Round(seed, plan, fairlead);
      tally = round.run();
    }
    if (!leaks.isEmpty()) {
      throw new TortureFailedException("left open: " + leaks, null);
    }
    return tally;
  }

  /** Says what is drawn from the seed. */
  static String describe(long seed) {
    Draw draw = new Draw(seed);
    return "pool " + draw.pool + ", refused " + draw.refused + ", below " + draw.below;
  }

  /** What is not a task's. */
  private static final class Draw {
    final MemoryPool pool;
    final MemoryFailures refused;
    final MemoryFailures below;

    Draw(long seed) {
      SplittableRandom random = new SplittableRandom(seed);
      MemoryPool[] pools = MemoryPool.values();
      pool = pools[random.nextInt(pools.length)];
      refused = random.nextInt(3) == 0 ? MemoryFailures.NONE : MemoryFailures.rate(0.01, seed);
      below = random.nextInt(3) == 0 ? MemoryFailures.NONE : MemoryFailures.rate(0.02, seed);
    }
  }

  private static FairleadConfig config(long seed, Plan plan, List<Leak> leaks) {
    Draw draw = new Draw(seed);
    FairleadConfig config =
        FairleadConfig.fromSystem().withDevice(plan.device).withDeviceMemory(plan.memory);
    if (plan.device.equals("host")) {
      config = config.withDriverSetting("poison", "true"); // what is used after its end shows
    }
    MemoryConfig memory =
        config
            .memory()
            .withPool(draw.pool)
            .withFailures(draw.refused)
            .withChunk(64 << 10)
            .withWait(WAIT)
            .withGrace(GRACE)
            .withLeakListener(leaks::addAll)
            .withSpill(
                SpillConfig.TO_HOST
                    .withHostBytesMax(HOST_SHARE * plan.memory)
                    .withDisk(plan.directory, DISK_BYTES)
                    .withFailures(draw.below));
    return config.withMemory(memory);
  }

  // --- for its tasks ------------------------------------------------------------------------

  Device device() {
    return fairlead.device();
  }

  TortureKernels kernels() {
    return kernels;
  }

  Tally tally() {
    return tally;
  }

  Leased leased() {
    return leased;
  }

  TaskScope<Integer> scope(ScopeOptions options) {
    return fairlead.scope(options);
  }

  /** The first is told at the end. */
  void broken(TortureFailedException failure) {
    broken.compareAndSet(null, failure);
  }

  // --- its course ---------------------------------------------------------------------------

  private Tally run() {
    List<Comm> ranks = InProcess.ranks(fairlead.tasks(), 2, CommConfig.DEFAULT);
    try (TaskScope<Integer> scope = fairlead.scope()) {
      SplittableRandom random = new SplittableRandom(~seed);
      atWork.set(plan.actors);
      for (int i = 0; i < LANES; i++) {
        Lane lane = new Lane(this, random.nextLong(), i, MESSAGES);
        scope.fork(eager("sender " + i, random), () -> lane.send(ranks.getFirst()));
        scope.fork(eager("receiver " + i, random), () -> lane.receive(ranks.getLast()));
      }
      for (int i = 0; i < plan.actors; i++) {
        long own = random.nextLong();
        scope.fork(eager("actor " + i, random), () -> act(own));
      }
      long own = random.nextLong();
      scope.fork(ForkOptions.named("trouble").eager(true), () -> trouble(own));
      scope.join();
    } finally {
      leased.endAll();
      ranks.forEach(Comm::close);
      kernels.close();
    }
    TortureFailedException failure = broken.get();
    if (failure != null) {
      throw failure;
    }
    requireNothingLeft();
    count();
    return tally;
  }

  private static ForkOptions eager(String name, SplittableRandom random) {
    return ForkOptions.named(name).priority(random.nextInt(PRIORITIES)).eager(true);
  }

  private int act(long own) {
    Task self = Task.current();
    actors.add(self);
    try {
      return new Actor(this, own, false).run(plan.steps);
    } finally {
      actors.remove(self);
      boolean _ = Task.interrupted();
      atWork.decrementAndGet();
    }
  }

  /** Interrupts, trims, and ends what others keep, until the actors are done. */
  private int trouble(long own) {
    SplittableRandom random = new SplittableRandom(own);
    int done = 0;
    while (atWork.get() > 0) {
      LockSupport.parkNanos(random.nextInt(2_000_000));
      switch (random.nextInt(8)) {
        case 0 -> device().trim();
        case 1, 2 -> interrupt(random.nextInt(plan.actors));
        default -> leased.endOne();
      }
      done++;
      Task.current().checkCancelled();
    }
    return done;
  }

  private void interrupt(int number) {
    actors.stream().skip(number).findFirst().ifPresent(Task::interrupt);
  }

  // --- what is left -------------------------------------------------------------------------

  private void requireNothingLeft() {
    Device device = device();
    long end = System.nanoTime() + SETTLE_NANOS;
    String left = left(device);
    while (!left.isEmpty() && System.nanoTime() - end < 0) {
      device.context().reached().await();
      device.trim().await();
      LockSupport.parkNanos(LOOK_NANOS);
      left = left(device);
    }
    if (!left.isEmpty()) {
      throw new TortureFailedException("left behind: " + left + "; " + device.memory(), null);
    }
  }

  private static String left(Device device) {
    MemoryStats now = device.memory();
    StringBuilder left = new StringBuilder();
    add(now.inUse(), "bytes on the device", left);
    add(now.reserved(), "bytes promised", left);
    add(now.onHost(), "bytes of images in host memory", left);
    add(now.onDisk(), "bytes of files", left);
    add(now.waits().now(), "requests", left);
    add(now.cached(), "bytes in the pool after a trim", left);
    return left.toString();
  }

  private static void add(long count, String what, StringBuilder left) {
    if (count != 0) {
      left.append(left.isEmpty() ? "" : ", ").append(count).append(' ').append(what);
    }
  }

  private void count() {
    MemoryStats stats = device().memory();
    tally.spills.add(stats.spills());
    tally.filesBytes.add(stats.moved().toDisk());
    tally.rollbacks.add(stats.waits().rollbacks());
    tally.splits.add(stats.waits().splits());
  }
}
