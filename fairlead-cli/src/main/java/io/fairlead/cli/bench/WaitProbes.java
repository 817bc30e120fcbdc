package io.fairlead.cli.bench;

import com.sun.management.OperatingSystemMXBean;
import io.fairlead.device.DeviceContext;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.Kernel;
import io.fairlead.device.KernelModule;
import io.fairlead.device.ModuleSource;
import io.fairlead.device.Param;
import io.fairlead.device.spi.Grid;
import io.fairlead.device.spi.ModuleImage;
import io.fairlead.runtime.Fairlead;
import io.fairlead.task.Completion;
import io.fairlead.task.ForkOptions;
import io.fairlead.task.TaskScope;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/**
 * Long waits on many streams: what they cost others, and what they cost themselves. The kernels
 * take their time by the GPU's clock, so that they do not load the bus as held ones would.
 *
 * <p>All streams are made before any kernel runs: a driver may wait with that until none does.
 */
final class WaitProbes implements AutoCloseable {
  /** Resident at once on any GPU of note (128 grids are), with room for a few more. */
  static final int LONG_WAITS = 64;

  private static final Grid ALONE = Grid.of(1).withBlock(1);
  private static final long SHORT_NANOS = 20_000;
  private static final double LONG_NANOS = 1e9;

  /** Of the long kernels' time, after it was seen that they run. */
  private static final double MEASURED = 0.7;

  /**
   * Waits of a fortieth, before the processor time of long ones is measured: most looks come early
   * in a wait, and what compilers use then is not what waits cost.
   */
  private static final int WARM_UP_ROUNDS = 40;

  /** After a task has said that it will wait, until it has parked. */
  private static final long PARKING_NANOS = 100_000;

  private final Fairlead fairlead;
  private final DeviceContext context;
  private final long longNanos;
  private final Kernel nop;
  private final Kernel spin;
  private final List<DeviceStream> slow = new ArrayList<>();
  private final DeviceStream probe;

  /**
   * Loads the kernels on the first device.
   *
   * @param scale divides the time that long kernels take
   */
  WaitProbes(Fairlead fairlead, ModuleImage image, int scale) {
    this.fairlead = fairlead;
    this.context = fairlead.device().context();
    this.longNanos = Math.max(20_000_000, (long) (LONG_NANOS / scale));
    KernelModule module = context.load(new ModuleSource("bench", List.of(image)));
    this.nop = module.kernel("nop");
    this.spin = module.kernel("spin", Param.I64);
    for (int i = 0; i < LONG_WAITS; i++) {
      slow.add(context.openStream(0));
    }
    this.probe = context.openStream(0);
    slow.forEach(this::warmUp);
    warmUp(probe);
  }

  private void warmUp(DeviceStream stream) {
    spin.launch(stream, ALONE, 1_000L);
    nop.launch(stream, ALONE);
    stream.reached().awaitUninterruptibly();
  }

  /**
   * Short waits beside long kernels, nanoseconds: while somebody waits for each of these, and while
   * nobody does, in turn.
   */
  double[][] besideLong(int rounds) {
    List<Double> waited = new ArrayList<>();
    List<Double> alone = new ArrayList<>();
    besideLong(true); // warms up
    for (int round = 0; round < rounds; round++) {
      alone.addAll(besideLong(false));
      waited.addAll(besideLong(true));
    }
    return new double[][] {array(waited), array(alone)};
  }

  private static double[] array(List<Double> samples) {
    return samples.stream().mapToDouble(Double::doubleValue).toArray();
  }

  private List<Double> besideLong(boolean waits) {
    long start = System.nanoTime();
    slow.forEach(stream -> spin.launch(stream, ALONE, longNanos));
    try (TaskScope<List<Double>> scope = fairlead.scope()) {
      AtomicInteger waiting = new AtomicInteger();
      if (waits) {
        for (DeviceStream stream : slow) {
          scope.fork(ForkOptions.named("waiter").eager(true), () -> await(stream, waiting));
        }
        untilAllWait(waiting);
      }
      long end = start + (long) (MEASURED * longNanos);
      scope.fork(ForkOptions.named("probe").eager(true), () -> shortWaits(end));
      return scope.join().getLast();
    } finally {
      slow.forEach(stream -> stream.reached().awaitUninterruptibly());
    }
  }

  private static List<Double> await(DeviceStream stream, AtomicInteger waiting) {
    Completion<Void> reached = stream.reached();
    waiting.incrementAndGet();
    reached.await();
    return List.of();
  }

  private static void untilAllWait(AtomicInteger waiting) {
    while (waiting.get() < LONG_WAITS) {
      LockSupport.parkNanos(20_000);
    }
    WakeProbes.compute(PARKING_NANOS);
  }

  private List<Double> shortWaits(long end) {
    List<Double> samples = new ArrayList<>();
    do {
      long start = System.nanoTime();
      spin.launch(probe, ALONE, SHORT_NANOS);
      probe.reached().await();
      samples.add((double) (System.nanoTime() - start));
    } while (System.nanoTime() - end < 0);
    return samples;
  }

  /**
   * What the process uses of a core, from when tasks wait for long kernels until all are woken: one
   * share for each round; and the nanoseconds by which the last one was woken later than its kernel
   * can have ended.
   */
  double[][] coreOfLongWaits(int rounds) {
    double[] shares = new double[rounds];
    double[] late = new double[rounds];
    for (int i = 0; i < WARM_UP_ROUNDS; i++) {
      coreOfLongWaits(longNanos / WARM_UP_ROUNDS);
    }
    for (int round = 0; round < rounds; round++) {
      double[] both = coreOfLongWaits(longNanos);
      shares[round] = both[0];
      late[round] = both[1];
    }
    return new double[][] {shares, late};
  }

  private double[] coreOfLongWaits(long kernelNanos) {
    OperatingSystemMXBean process =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    try (TaskScope<@Nullable Void> scope = fairlead.scope()) {
      AtomicInteger waiting = new AtomicInteger();
      slow.forEach(stream -> spin.launch(stream, ALONE, kernelNanos));
      long launched = System.nanoTime();
      for (DeviceStream stream : slow) {
        scope.fork(
            ForkOptions.named("waiter").eager(true),
            () -> {
              await(stream, waiting);
              return null;
            });
      }
      untilAllWait(waiting);
      long start = System.nanoTime();
      long cpu = process.getProcessCpuTime();
      scope.join();
      long used = process.getProcessCpuTime() - cpu;
      long end = System.nanoTime();
      return new double[] {
        (double) used / (end - start), Math.max(0, (double) (end - launched - kernelNanos))
      };
    }
  }

  /** Gives the streams back. */
  @Override
  public void close() {
    slow.forEach(DeviceStream::close);
    probe.close();
  }
}
