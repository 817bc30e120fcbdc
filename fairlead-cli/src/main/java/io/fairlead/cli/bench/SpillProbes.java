package io.fairlead.cli.bench;

import io.fairlead.device.Access;
import io.fairlead.device.DeviceStats;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.Operand;
import io.fairlead.device.StreamOperation;
import io.fairlead.device.spi.DriverCall;
import io.fairlead.memory.Device;
import io.fairlead.memory.DeviceBuffer;
import io.fairlead.memory.Tier;
import io.fairlead.runtime.Fairlead;
import io.fairlead.task.Completion;
import io.fairlead.task.ForkOptions;
import io.fairlead.task.TaskBody;
import io.fairlead.task.TaskScope;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;
import java.util.function.Function;

/**
 * What it takes to spill buffers and to bring them back; nanoseconds. Each probe gives its samples
 * in the order they were taken.
 *
 * <p>How a buffer is spilled is given to it, so that a test can have something else done.
 */
final class SpillProbes {
  /** What one operation brings back at most. */
  private static final int OPERANDS = 32;

  private static final int WARM_UP = 3;

  /** For each round that counts: small buffers are soon over, and the compiler is not. */
  private static final long WARM_UP_NANOS = 50_000_000;

  private static final int WARM_UP_MAX = 300;

  /** So much of the device is written by each operation of the task that does not spill. */
  private static final long BYSTANDER_BYTES = 4L << 20;

  private static final long PERIOD_NANOS = 200_000_000;

  /** Buffers of which none has left the device for so long have nowhere to go. */
  private static final long STAYS_NANOS = 1_000_000_000;

  private static final long PAUSE_NANOS = 50_000;
  private static final StreamOperation NOTHING = (_, _) -> {};

  private final Fairlead fairlead;
  private final Device device;
  private final Function<DeviceBuffer, Completion<?>> spill;

  SpillProbes(Fairlead fairlead, Function<DeviceBuffer, Completion<?>> spill) {
    this.fairlead = fairlead;
    this.device = fairlead.device();
    this.spill = spill;
  }

  private <T> T inTask(TaskBody<T> body) {
    return ProbeTask.run(fairlead, body);
  }

  /**
   * So many buffers, which were just written, are spilled at once; then operations that read them
   * bring them back.
   *
   * @param between run after each round: what is compared takes turns
   * @return down, up: for all buffers, in each round
   */
  double[][] passes(int count, long bytes, int rounds, Consumer<Integer> between) {
    return inTask(
        () -> {
          double[][] samples = new double[2][rounds];
          try (Buffers buffers = new Buffers(count, bytes)) {
            buffers.warmUp(rounds * WARM_UP_NANOS);
            for (int i = 0; i < rounds; i++) {
              buffers.write();
              long start = System.nanoTime();
              buffers.spill();
              long middle = System.nanoTime();
              buffers.bringBack();
              long end = System.nanoTime();
              samples[0][i] = middle - start;
              samples[1][i] = end - middle;
              between.accept(i);
            }
          }
          return samples;
        });
  }

  /**
   * As {@link #passes}, counted instead of timed.
   *
   * @return down, up: for each buffer, in each round, operations of streams and what goes with
   *     them: signals, edges, records of events
   */
  double[][] calls(int count, long bytes, int rounds) {
    return inTask(
        () -> {
          double[][] calls = new double[2][rounds];
          try (Buffers buffers = new Buffers(count, bytes)) {
            for (int i = -WARM_UP; i < rounds; i++) {
              buffers.write();
              long start = callsSoFar();
              buffers.spill();
              long middle = callsSoFar();
              buffers.bringBack();
              long end = callsSoFar();
              if (i >= 0) {
                calls[0][i] = (double) (middle - start) / count;
                calls[1][i] = (double) (end - middle) / count;
              }
            }
          }
          return calls;
        });
  }

  private long callsSoFar() {
    DeviceStats stats = device.context().stats();
    return stats.operations() + stats.signals() + stats.edges() + stats.events();
  }

  /**
   * One task's operations, each waited for: while nobody spills, and while another task does
   * nothing else, in turn.
   *
   * @return alone, beside: the median of each period
   */
  double[][] bystander(int count, long bytes, int periods) {
    return inTask(
        () -> {
          double[][] medians = new double[2][periods];
          try (DeviceBuffer own = device.allocate(BYSTANDER_BYTES);
              Buffers buffers = new Buffers(count, bytes)) {
            work(own, PERIOD_NANOS);
            for (int i = 0; i < periods; i++) {
              medians[0][i] = work(own, PERIOD_NANOS);
              medians[1][i] = workBeside(own, buffers);
            }
          }
          return medians;
        });
  }

  private double workBeside(DeviceBuffer own, Buffers buffers) {
    long end = System.nanoTime() + PERIOD_NANOS;
    try (TaskScope<Integer> scope = fairlead.scope()) {
      scope.fork(
          ForkOptions.named("spills").eager(true),
          () -> {
            int rounds = 0;
            while (System.nanoTime() < end) {
              buffers.write();
              buffers.spill();
              buffers.bringBack();
              rounds++;
            }
            return rounds;
          });
      double median = work(own, end - System.nanoTime());
      scope.join();
      return median;
    }
  }

  private double work(DeviceBuffer own, long nanos) {
    List<Double> samples = new ArrayList<>();
    long now = System.nanoTime();
    long end = now + nanos;
    do {
      own.fill((byte) samples.size());
      device.stream().reached().await();
      long before = now;
      now = System.nanoTime();
      samples.add((double) (now - before));
    } while (now < end);
    return Samples.of(samples).median();
  }

  /** Buffers of one size. Used by one task at a time. */
  private final class Buffers implements AutoCloseable {
    private final List<DeviceBuffer> all = new ArrayList<>();

    Buffers(int count, long bytes) {
      for (int i = 0; i < count; i++) {
        all.add(device.allocate(bytes));
      }
    }

    /** Some rounds, and more of them until the time is over. */
    void warmUp(long nanos) {
      long end = System.nanoTime() + nanos;
      for (int i = 0; i < WARM_UP || (i < WARM_UP_MAX && System.nanoTime() < end); i++) {
        write();
        spill();
        bringBack();
      }
    }

    /** So that what lies below is out of date. */
    void write() {
      for (int i = 0; i < all.size(); i++) {
        all.get(i).fill((byte) i);
      }
      device.stream().reached().await();
    }

    /** Where there is no room for all at once, those that stayed are asked again. */
    void spill() {
      List<DeviceBuffer> left = all;
      long end = System.nanoTime() + STAYS_NANOS;
      while (!left.isEmpty()) {
        List<DeviceBuffer> stayed = spill(left);
        if (stayed.size() < left.size()) {
          end = System.nanoTime() + STAYS_NANOS;
        } else if (System.nanoTime() > end) {
          throw new IllegalStateException(
              stayed.size() + " of " + all.size() + " buffers stay on the device: nothing to time");
        } else {
          LockSupport.parkNanos(PAUSE_NANOS);
        }
        left = stayed;
      }
    }

    private List<DeviceBuffer> spill(List<DeviceBuffer> some) {
      List<Completion<?>> spilled = new ArrayList<>(some.size());
      some.forEach(each -> spilled.add(spill.apply(each)));
      List<DeviceBuffer> stayed = new ArrayList<>(0);
      for (int i = 0; i < spilled.size(); i++) {
        if (spilled.get(i).await() == Tier.DEVICE) {
          stayed.add(some.get(i));
        }
      }
      return stayed;
    }

    void bringBack() {
      DeviceStream stream = device.stream();
      for (int from = 0; from < all.size(); from += OPERANDS) {
        List<DeviceBuffer> some = all.subList(from, Math.min(from + OPERANDS, all.size()));
        Access[] reads = new Access[some.size()];
        Arrays.fill(reads, Access.READ);
        stream.enqueue(
            DriverCall.LAUNCH, "bring back", some.toArray(Operand[]::new), reads, NOTHING);
      }
      stream.reached().await();
    }

    @Override
    public void close() {
      all.forEach(DeviceBuffer::close);
    }
  }
}
