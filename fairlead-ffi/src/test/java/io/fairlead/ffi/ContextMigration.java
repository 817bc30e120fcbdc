package io.fairlead.ffi;

import io.fairlead.device.DeviceContext;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.Kernel;
import io.fairlead.device.ModuleSource;
import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.Grid;
import io.fairlead.task.ForkOptions;
import io.fairlead.task.TaskRuntime;
import io.fairlead.task.TaskScope;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.atomic.LongAdder;

/**
 * Tasks that change their OS thread between any two calls, and call several contexts: row
 * cuda.context. Each call is looked at with the driver's own functions: inside, the context that
 * the call needs is current; afterwards, what was current before.
 *
 * <p>What was current before is, by turns, nothing, the foreign context, and another of ours, as if
 * foreign code had made it so just before.
 */
@SuppressWarnings("ThreadPriorityCheck") // yielding is what brings a task to another thread
final class ContextMigration {
  private static final int CHECKPOINT_EVERY = 8;
  private static final int LAUNCH_EVERY = 32;
  private static final int WAIT_EVERY = 256;

  /**
   * How it went.
   *
   * @param wrongInside calls that had another context than theirs, or none
   * @param wrongAfter calls that left another context than was there
   */
  record Outcome(long calls, long wrongInside, long wrongAfter, long nanos) {}

  private final TaskRuntime tasks;
  private final RawContexts raw;
  private final List<DeviceContext> contexts;

  /** A kernel of each context, without parameters. */
  private final List<Kernel> kernels;

  /** The driver's own, by index as {@link #contexts}; behind them the foreign one, and none. */
  private final long[] handles;

  private final LongAdder calls = new LongAdder();
  private final LongAdder wrongInside = new LongAdder();
  private final LongAdder wrongAfter = new LongAdder();

  ContextMigration(
      TaskRuntime tasks, RawContexts raw, List<DeviceContext> contexts, ModuleSource code) {
    this.tasks = tasks;
    this.raw = raw;
    this.contexts = contexts;
    this.kernels = contexts.stream().map(context -> context.load(code).kernel("nop")).toList();
    this.handles = new long[contexts.size() + 2];
    for (int i = 0; i < contexts.size(); i++) {
      handles[i] = contexts.get(i).driverCall(DriverCall.MEMORY_INFO, "look", raw::current);
    }
    handles[contexts.size()] = raw.foreign();
  }

  Outcome run(int taskCount, int callsEach, long seed) {
    System.out.println("seed " + seed);
    // a class that is loaded where a context is current might make its task wait there
    work(new SplittableRandom(seed), WAIT_EVERY);
    calls.reset();
    long start = System.nanoTime();
    try (TaskScope<Void> scope = tasks.scope()) {
      for (int t = 1; t <= taskCount; t++) {
        SplittableRandom random = new SplittableRandom(seed + t);
        scope.fork(
            ForkOptions.named("caller").eager(true),
            () -> {
              work(random, callsEach);
              return null;
            });
      }
      scope.join();
    }
    return new Outcome(calls.sum(), wrongInside.sum(), wrongAfter.sum(), System.nanoTime() - start);
  }

  private void work(SplittableRandom random, int count) {
    for (int i = 1; i <= count; i++) {
      Thread.yield();
      int which = random.nextInt(contexts.size());
      callUnder(handles[random.nextInt(handles.length)], which, i % CHECKPOINT_EVERY == 0);
      if (i % LAUNCH_EVERY == 0) {
        kernels.get(which).launch(Grid.of(1).withBlock(1)); // may wait for its turn
        requireCurrent(0, wrongAfter);
      }
      if (i % WAIT_EVERY == 0) {
        contexts.get(which).stream().reached().await();
      }
    }
  }

  /** Nothing in here suspends: what is current belongs to the OS thread. */
  private void callUnder(long before, int which, boolean checkpoint) {
    DeviceContext context = contexts.get(which);
    DeviceStream stream = checkpoint ? context.stream() : null; // may wait for it to be made
    raw.makeCurrent(before);
    context.driverCall(
        DriverCall.MEMORY_INFO,
        "look",
        () -> {
          requireCurrent(handles[which], wrongInside);
          return null;
        });
    requireCurrent(before, wrongAfter);
    if (stream != null) {
      stream.checkpoint(); // with an old driver this needs its context too
      requireCurrent(before, wrongAfter);
    }
    raw.makeCurrent(0);
    calls.increment();
  }

  private void requireCurrent(long wanted, LongAdder wrong) {
    if (raw.current() != wanted) {
      wrong.increment();
    }
  }
}
