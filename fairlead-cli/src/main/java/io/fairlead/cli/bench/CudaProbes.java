package io.fairlead.cli.bench;

import static java.lang.foreign.ValueLayout.JAVA_LONG;

import com.sun.management.ThreadMXBean;
import io.fairlead.device.DeviceContext;
import io.fairlead.device.DeviceLostException;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.HostBlock;
import io.fairlead.device.Kernel;
import io.fairlead.device.KernelModule;
import io.fairlead.device.Mark;
import io.fairlead.device.ModuleSource;
import io.fairlead.device.Param;
import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.Grid;
import io.fairlead.device.spi.ModuleImage;
import io.fairlead.fault.TaskInterruptedException;
import io.fairlead.runtime.Fairlead;
import io.fairlead.task.Completion;
import io.fairlead.task.Fork;
import io.fairlead.task.ForkOptions;
import io.fairlead.task.Task;
import io.fairlead.task.TaskBody;
import io.fairlead.task.TaskScope;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.VarHandle;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import org.jspecify.annotations.Nullable;

/**
 * What launches and waits cost on a GPU; nanoseconds unless said otherwise. Each probe warms itself
 * up, and gives its samples in the order they were taken.
 *
 * <p>While a kernel is held, nothing is made or loaded: a driver may wait with that until no kernel
 * runs.
 */
final class CudaProbes {
  /** One thread: a kernel that waits need not wait in many. */
  private static final Grid ALONE = Grid.of(1).withBlock(1);

  private static final VarHandle FLAG = JAVA_LONG.varHandle();
  private static final long MILLI = 1_000_000;

  /** As the baseline: well below the 512 unfinished operations that a stream takes. */
  private static final int BATCH = 200;

  private static final int CHEAP_BATCH = 10_000;

  /** What has not come by then never comes. */
  private static final long LOST_NANOS = 2_000 * MILLI;

  /**
   * From then on no waiter is waited for any more: what is lost many times need not be seen more.
   */
  private static final long CROWD_NANOS = 10_000 * MILLI;

  /** After a task has said that it will wait, until it has parked. */
  private static final long PARKING_NANOS = 100_000;

  private final Fairlead fairlead;
  private final DeviceContext context;
  private final int scale;
  private final Kernel nop;
  private final Kernel spin;
  private final Kernel hold;
  private final Kernel nullstore;
  private final Object answer = new Object();
  private final TaskBody<Object> body = this::answer;

  /**
   * Loads the kernels on the first device.
   *
   * @param scale divides the numbers of rounds
   */
  CudaProbes(Fairlead fairlead, ModuleImage image, int scale) {
    this.fairlead = fairlead;
    this.context = fairlead.device().context();
    this.scale = scale;
    KernelModule module = context.load(new ModuleSource("bench", List.of(image)));
    this.nop = module.kernel("nop");
    this.spin = module.kernel("spin", Param.I64);
    this.hold = module.kernel("hold", Param.I64);
    this.nullstore = module.kernel("nullstore");
  }

  private double[] inTask(TaskBody<double[]> body) {
    return ProbeTask.run(fairlead, body);
  }

  private int rounds(int full) {
    return Math.max(5, full / scale);
  }

  private void warmUp(Runnable body) {
    warmUp(1_500 * MILLI, body);
  }

  private void warmUp(long nanos, Runnable body) {
    long end = System.nanoTime() + nanos / scale;
    while (System.nanoTime() < end) {
      body.run();
    }
  }

  // --- launches and waits -----------------------------------------------------------------------

  /** A launch, and a parked wait for it, of a kernel that takes so long. */
  double[] waits(long nanos, int fullRounds) {
    return inTask(
        () -> {
          DeviceStream stream = context.stream();
          double[] samples = new double[rounds(fullRounds)];
          // The same code whatever the kernel takes: a long one has it warm from a short one.
          warmUp(nanos == 0 ? 1_500 * MILLI : 300 * MILLI, () -> launchAndWait(stream, nanos));
          for (int i = 0; i < samples.length; i++) {
            long start = System.nanoTime();
            launchAndWait(stream, nanos);
            samples[i] = System.nanoTime() - start;
          }
          return samples;
        });
  }

  private void launchAndWait(DeviceStream stream, long nanos) {
    if (nanos == 0) {
      nop.launch(stream, ALONE);
    } else {
      spin.launch(stream, ALONE, nanos);
    }
    stream.reached().await();
  }

  /**
   * A launch, and a parked wait for it, while other tasks keep all carriers busy. Until the code is
   * warm, compilers compete with them for the processors, and either loses one for milliseconds.
   *
   * @param busy what they do, over and over
   */
  double[] waitsBeside(Runnable busy, long nanos) {
    WakeProbes wakes = new WakeProbes(fairlead, scale > 1);
    return wakes.whileBusy(
        busy,
        1_500 * MILLI / scale,
        () -> {
          long start = System.nanoTime();
          launchAndWait(context.stream(), nanos);
          return System.nanoTime() - start;
        });
  }

  /** Per launch of an empty kernel. */
  double[] launches() {
    return inTask(
        () -> {
          DeviceStream stream = context.stream();
          double[] samples = new double[rounds(300)];
          warmUp(() -> launchBatch(stream));
          for (int i = 0; i < samples.length; i++) {
            samples[i] = launchBatch(stream);
          }
          return samples;
        });
  }

  private double launchBatch(DeviceStream stream) {
    long start = System.nanoTime();
    for (int i = 0; i < BATCH; i++) {
      nop.launch(stream, ALONE);
    }
    double each = (System.nanoTime() - start) / (double) BATCH;
    stream.reached().await();
    return each;
  }

  // --- what is cheap ----------------------------------------------------------------------------

  /** A wait for work that has ended: nanoseconds, then bytes. On the calling thread. */
  double[][] finishedWaits() {
    DeviceStream stream = context.stream();
    launchAndWait(stream, 0);
    Mark mark = stream.mark();
    Runnable batch = () -> awaitFinished(stream, mark);
    double[] nanos = cheap(batch);
    ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
    long before = threads.getCurrentThreadAllocatedBytes();
    batch.run();
    double bytes = (threads.getCurrentThreadAllocatedBytes() - before) / (double) CHEAP_BATCH;
    return new double[][] {nanos, {bytes}};
  }

  private static void awaitFinished(DeviceStream stream, Mark mark) {
    for (int i = 0; i < CHEAP_BATCH; i++) {
      stream.reached(mark).await();
    }
  }

  private double[] cheap(Runnable batch) {
    warmUp(batch);
    double[] samples = new double[rounds(100)];
    for (int i = 0; i < samples.length; i++) {
      long start = System.nanoTime();
      batch.run();
      samples[i] = (System.nanoTime() - start) / (double) CHEAP_BATCH;
    }
    return samples;
  }

  /**
   * A driver call that does nothing: where the context must be current, and is not; where it need
   * not be; and the same loop with nothing around. Samples of the first or the second are missing
   * with a driver that demands the context for no such call, or for each. On the calling thread.
   */
  double[][] guards() {
    Driver driver = context.driver();
    double[] none = {};
    double[] bound =
        driver.needsCurrent(DriverCall.MEMORY_INFO)
            ? cheap(() -> guarded(DriverCall.MEMORY_INFO))
            : none;
    double[] unbound =
        driver.needsCurrent(DriverCall.LAUNCH) ? none : cheap(() -> guarded(DriverCall.LAUNCH));
    return new double[][] {bound, unbound, cheap(this::unguarded)};
  }

  private Object answer() {
    return answer;
  }

  /** The same in a task. */
  double[][] guardsInTask() {
    double[][][] all = new double[1][][];
    inTask(
        () -> {
          all[0] = guards();
          return new double[0];
        });
    return all[0];
  }

  /** One body for all calls, with an answer that is there: what it costs is none of the guard's. */
  private void guarded(DriverCall call) {
    for (int i = 0; i < CHEAP_BATCH; i++) {
      requireSame(context.driverCall(call, "probe", body));
    }
  }

  private void unguarded() {
    for (int i = 0; i < CHEAP_BATCH; i++) {
      requireSame(answer());
    }
  }

  /** So that the loops are not thrown away. */
  @SuppressWarnings("ReferenceEquality") // it is to be the very one
  private void requireSame(Object found) {
    if (found != answer) {
      throw new IllegalStateException("a call gave another one's answer");
    }
  }

  // --- waits that end early ---------------------------------------------------------------------

  /** From the interrupt of a task that waits for a held kernel until its wait has thrown. */
  double[] interrupts() {
    double[] samples = new double[rounds(300)];
    try (HostBlock flag = context.hostBlocks().take(Long.BYTES)) {
      for (int i = -samples.length / 5; i < samples.length; i++) {
        double nanos = new Interrupt(flag.segment().fill((byte) 0)).nanos();
        if (i >= 0) {
          samples[i] = nanos;
        }
      }
    }
    return samples;
  }

  /** The task says that it waits, then that it was interrupted; only then the kernel ends. */
  private final class Interrupt {
    private static final int WAITS = 1;
    private static final int THROWN = 2;

    private final MemorySegment flag;
    private final AtomicInteger step = new AtomicInteger();

    Interrupt(MemorySegment flag) {
      this.flag = flag;
    }

    double nanos() {
      try (TaskScope<Long> scope = fairlead.scope()) {
        Fork<Long> fork = scope.fork(ForkOptions.named("waiter").eager(true), this::await);
        until(() -> step.get() == WAITS);
        WakeProbes.compute(PARKING_NANOS);
        long start = System.nanoTime();
        fork.task().interrupt();
        until(() -> step.get() == THROWN);
        release(flag, 0);
        scope.join();
        return fork.get() - start;
      }
    }

    private long await() {
      DeviceStream stream = context.stream();
      hold.launch(stream, ALONE, flag.address());
      step.set(WAITS);
      try {
        stream.reached().await();
        throw new IllegalStateException("a kernel that is held has ended");
      } catch (TaskInterruptedException expected) {
        long end = System.nanoTime();
        step.set(THROWN);
        Task.interrupted();
        stream.reached().awaitUninterruptibly();
        return end;
      }
    }
  }

  // --- many waiters -----------------------------------------------------------------------------

  /**
   * Many waiters on many streams, which end one after the other, each when all who waited for the
   * one before have run: from the moment that the host let a stream's work go until each waiter
   * ran; how many never ran; and the first and the last one of each stream.
   *
   * <p>Each stream's signal is enqueued with its work, before the next stream's: streams share
   * hardware queues, and what is enqueued behind others' held work in the same queue sticks with
   * it, whatever kind of signal it is.
   */
  double[][] manyWaiters(int waiters, int streamCount) {
    List<DeviceStream> streams = new ArrayList<>();
    for (int i = 0; i < streamCount; i++) {
      streams.add(context.openStream(0));
    }
    DeviceStream gate = context.openStream(0);
    makeEvents(gate, streams);
    List<Completion<Void>> signalled = new ArrayList<>();
    try (HostBlock flags = context.hostBlocks().take((long) Long.BYTES * streamCount)) {
      MemorySegment segment = flags.segment().fill((byte) 0);
      for (int i = 0; i < streamCount; i++) {
        hold.launch(gate, ALONE, segment.address() + (long) Long.BYTES * i);
        streams.get(i).after(gate.mark());
        nop.launch(streams.get(i), ALONE);
        signalled.add(streams.get(i).reached());
      }
      try {
        return new Crowd(waiters, streams, segment).wake();
      } finally {
        for (int i = 0; i < streamCount; i++) {
          release(segment, i);
        }
        signalled.forEach(Completion::awaitUninterruptibly);
      }
    } finally {
      gate.close();
      streams.forEach(DeviceStream::close);
    }
  }

  private static void release(MemorySegment flags, int index) {
    FLAG.setRelease(flags, (long) Long.BYTES * index, 1L);
  }

  /** All edges once, behind a kernel that ends by itself: the events are there from then on. */
  private void makeEvents(DeviceStream gate, List<DeviceStream> streams) {
    spin.launch(gate, ALONE, 200 * MILLI);
    for (DeviceStream stream : streams) {
      nop.launch(gate, ALONE);
      stream.after(gate.mark());
      nop.launch(stream, ALONE);
    }
    streams.forEach(stream -> stream.reached().await());
  }

  /** Waiter w waits on stream w modulo the number of streams. */
  private final class Crowd {
    private final int waiters;
    private final List<DeviceStream> streams;
    private final MemorySegment flags;
    private final AtomicInteger waiting = new AtomicInteger();
    private final AtomicIntegerArray woken;
    private final AtomicLongArray released;

    /** Each waiter writes its own; read once it has counted itself as woken. */
    private final long[] ran;

    Crowd(int waiters, List<DeviceStream> streams, MemorySegment flags) {
      this.waiters = waiters;
      this.streams = streams;
      this.flags = flags;
      this.woken = new AtomicIntegerArray(streams.size());
      this.released = new AtomicLongArray(streams.size());
      this.ran = new long[waiters];
    }

    double[][] wake() {
      try (TaskScope<@Nullable Void> scope = fairlead.scope()) {
        for (int w = 0; w < waiters; w++) {
          int waiter = w;
          scope.fork(ForkOptions.named("waiter").eager(true), () -> await(waiter));
        }
        until(() -> waiting.get() == waiters);
        WakeProbes.compute(PARKING_NANOS);
        long end = System.nanoTime() + CROWD_NANOS;
        for (int i = 0; i < streams.size(); i++) {
          releaseOne(i, System.nanoTime() - end < 0 ? LOST_NANOS : 0);
        }
        double[][] wakes = wakes();
        if (wakes[1][0] > 0) {
          scope.cancel(new IllegalStateException(wakes[1][0] + " waiters were not woken"));
        } else {
          scope.join();
        }
        return wakes;
      }
    }

    private @Nullable Void await(int waiter) {
      int stream = waiter % streams.size();
      var reached = streams.get(stream).reached();
      waiting.incrementAndGet();
      reached.await();
      ran[waiter] = System.nanoTime();
      woken.incrementAndGet(stream);
      return null;
    }

    private void releaseOne(int stream, long lostNanos) {
      int expected = waitersOf(stream);
      released.set(stream, System.nanoTime());
      release(flags, stream);
      long end = System.nanoTime() + lostNanos;
      until(() -> woken.get(stream) == expected || System.nanoTime() > end);
    }

    private int waitersOf(int stream) {
      return (waiters - stream + streams.size() - 1) / streams.size();
    }

    private double[][] wakes() {
      int all = 0;
      for (int i = 0; i < streams.size(); i++) {
        all += woken.get(i);
      }
      double[] nanos = new double[waiters];
      for (int w = 0; w < waiters; w++) {
        nanos[w] = ran[w] == 0 ? LOST_NANOS : ran[w] - released.get(w % streams.size());
      }
      return new double[][] {nanos, {waiters - all}, ends(nanos, true), ends(nanos, false)};
    }

    /** Of each stream the first waiter that ran, or the last one. */
    private double[] ends(double[] nanos, boolean first) {
      double[] ends = new double[Math.min(waiters, streams.size())];
      for (int w = 0; w < waiters; w++) {
        int stream = w % streams.size();
        boolean fits =
            w < ends.length || (first ? nanos[w] < ends[stream] : nanos[w] > ends[stream]);
        ends[stream] = fits ? nanos[w] : ends[stream];
      }
      return ends;
    }
  }

  // --- a fault ----------------------------------------------------------------------------------

  /**
   * A kernel that stores to where nothing is, and many who wait for what comes behind it: from the
   * moment that the host let the kernel go until each waiter has failed; how many different first
   * causes they were given; how many did not fail as they should; 1 if the cause names the launch,
   * else 0; and from the moment that the fault was known here until the last waiter has failed. The
   * context is lost afterwards.
   */
  double[][] fault(int waiters) {
    DeviceStream stream = context.openStream(0);
    MemorySegment flags = context.hostBlocks().take(2 * Long.BYTES).segment().fill((byte) 0);
    // once all wait for what ends well: a process that waits for the first time is a rare one
    hold.launch(stream, ALONE, flags.address() + Long.BYTES);
    new Told(stream, waiters).after(() -> release(flags, 1));
    hold.launch(stream, ALONE, flags.address());
    nullstore.launch(stream, ALONE);
    Told told = new Told(stream, waiters);
    long[] known = new long[1];
    double[] nanos =
        told.after(
            () -> {
              long start = System.nanoTime();
              release(flags, 0);
              until(context::isLost);
              known[0] = System.nanoTime() - start;
            });
    double named = String.valueOf(context.fault()).contains("nullstore") ? 1 : 0;
    return new double[][] {
      nanos,
      {told.causes.size()},
      {told.passed.get()},
      {named},
      {Samples.of(nanos).max() - known[0]}
    };
  }

  /** Many who wait for the end of a stream, and what they were told. */
  private final class Told {
    private final DeviceStream stream;
    private final int waiters;
    private final AtomicInteger waiting = new AtomicInteger();
    private final AtomicInteger passed = new AtomicInteger();
    private final Set<@Nullable Throwable> causes =
        Collections.synchronizedSet(Collections.newSetFromMap(new IdentityHashMap<>()));

    Told(DeviceStream stream, int waiters) {
      this.stream = stream;
      this.waiters = waiters;
    }

    /** From where all wait, and the stream is let go, until each was told. */
    double[] after(Runnable letGo) {
      try (TaskScope<Long> scope = fairlead.scope()) {
        for (int w = 0; w < waiters; w++) {
          scope.fork(ForkOptions.named("waiter").eager(true), this::await);
        }
        until(() -> waiting.get() == waiters);
        WakeProbes.compute(PARKING_NANOS);
        long start = System.nanoTime();
        letGo.run();
        return scope.join().stream().mapToDouble(end -> end - start).toArray();
      }
    }

    private long await() {
      var reached = stream.reached();
      waiting.incrementAndGet();
      try {
        reached.await();
        passed.incrementAndGet();
      } catch (DeviceLostException lost) {
        causes.add(lost.getCause());
      }
      return System.nanoTime();
    }
  }

  private static void until(BooleanSupplier condition) {
    while (!condition.getAsBoolean()) {
      LockSupport.parkNanos(20_000); // a carrier may need this processor
    }
  }
}
