package io.fairlead.cli.bench;

import io.fairlead.device.HostBlock;
import io.fairlead.memory.Device;
import io.fairlead.memory.DeviceBuffer;
import io.fairlead.runtime.Fairlead;
import io.fairlead.task.TaskBody;

/**
 * What memory on a GPU costs to have and to fill, as the baseline in C measures it; nanoseconds.
 * Each probe warms itself up, and gives its samples in the order they were taken.
 */
final class CudaMemoryProbes {
  /** As the baseline's. */
  static final long COPIED_BYTES = 64L << 20;

  private static final long ALLOCATED_BYTES = 4096;

  /** As the baseline's: below the 512 unfinished operations that a stream takes. */
  private static final int BATCH = 200;

  private static final int BATCHES = 300;
  private static final int COPIES = 40;
  private static final long WARM_UP_NANOS = 1_500_000_000L;

  private final Fairlead fairlead;
  private final Device device;
  private final int scale;

  /**
   * Measures on the first device.
   *
   * @param scale divides the numbers of rounds
   */
  CudaMemoryProbes(Fairlead fairlead, int scale) {
    this.fairlead = fairlead;
    this.device = fairlead.device();
    this.scale = scale;
  }

  private <T> T inTask(TaskBody<T> body) {
    return ProbeTask.run(fairlead, body);
  }

  private int rounds(int full) {
    return Math.max(5, full / scale);
  }

  /**
   * A buffer is allocated and closed, in batches: for each. Fairlead's own pool is in use unless
   * {@code fairlead.memory.pool=driver} says otherwise: so from the second on no driver call is
   * made, as with the pools of CuPy and PyTorch, where LWJGL and JCuda ask the driver each time.
   */
  double[] allocations() {
    return inTask(
        () -> {
          long end = System.nanoTime() + WARM_UP_NANOS / scale;
          while (System.nanoTime() < end) {
            allocateBatch();
          }
          double[] samples = new double[rounds(BATCHES)];
          for (int i = 0; i < samples.length; i++) {
            samples[i] = allocateBatch();
          }
          return samples;
        });
  }

  private double allocateBatch() {
    long start = System.nanoTime();
    for (int i = 0; i < BATCH; i++) {
      device.allocate(ALLOCATED_BYTES).close();
    }
    double each = (System.nanoTime() - start) / (double) BATCH;
    device.stream().reached().await();
    return each;
  }

  /** A pinned block is copied to the device and waited for, then back: for each way. */
  double[][] copies() {
    return inTask(
        () -> {
          double[][] samples = new double[2][rounds(COPIES)];
          try (HostBlock block = device.context().hostBlocks().take(COPIED_BYTES);
              DeviceBuffer buffer = device.allocate(COPIED_BYTES)) {
            for (int i = -3; i < samples[0].length; i++) {
              long start = System.nanoTime();
              buffer.uploadFrom(block, COPIED_BYTES).await();
              long middle = System.nanoTime();
              buffer.downloadTo(block).await();
              long end = System.nanoTime();
              if (i >= 0) {
                samples[0][i] = middle - start;
                samples[1][i] = end - middle;
              }
            }
          }
          return samples;
        });
  }
}
