package io.fairlead.cli;

import io.fairlead.device.DeviceStream;
import io.fairlead.memory.DeviceBuffer;
import io.fairlead.runtime.Fairlead;
import io.fairlead.runtime.FairleadConfig;
import io.fairlead.task.WaitMode;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.TimeUnit;

/**
 * Tries each waiting mode on a device: how much of a core the thread that waits uses meanwhile. It
 * waits for fills, so that no kernel has to be had for it.
 *
 * @param core of a core, 0 to 1
 */
record WaitTrial(String driver, WaitMode mode, double core) {
  /**
   * What is filled: small enough for any device, and of a large one a hundredth, which takes
   * longer.
   */
  private static final long BYTES_MIN = 16L << 20;

  private static final long BYTES_MAX = 1L << 30;

  /** Long beside the first microseconds, in which every mode looks again and again. */
  private static final long LONG_NANOS = TimeUnit.MILLISECONDS.toNanos(20);

  private static final int TURNS = 8;

  /** Below the unfinished operations that a stream takes. */
  private static final int FILLS_MAX = 400;

  /** More than a thread uses that parks, less than one that looks all the time. */
  private static final double PARKS_MAX = 0.5;

  /** On the first device of that driver. Blocks for as long as that takes to open. */
  static List<WaitTrial> on(String driver) {
    try (Fairlead fairlead = Fairlead.open(FairleadConfig.fromSystem().withDevice(driver))) {
      long memory = fairlead.device().context().info().memoryBytes();
      try (DeviceBuffer buffer =
          fairlead.device().allocate(Math.clamp(memory / 100, BYTES_MIN, BYTES_MAX))) {
        DeviceStream stream = fairlead.device().context().stream();
        int fills = fills(stream, buffer);
        for (WaitMode mode : WaitMode.values()) {
          core(stream, buffer, 1, mode); // what is loaded and compiled now is not the mode's doing
        }
        List<WaitTrial> trials = new ArrayList<>();
        for (WaitMode mode : WaitMode.values()) {
          trials.add(new WaitTrial(driver, mode, core(stream, buffer, fills, mode)));
        }
        return trials;
      }
    }
  }

  private static int fills(DeviceStream stream, DeviceBuffer buffer) {
    long shortest = LONG_NANOS;
    for (int i = 0; i < TURNS; i++) { // the first are cold, and any may lose its processor
      long start = System.nanoTime();
      buffer.fill((byte) i);
      stream.reached().awaitUninterruptibly();
      shortest = Math.min(shortest, System.nanoTime() - start);
    }
    return (int) Math.clamp(LONG_NANOS / shortest, 1L, FILLS_MAX);
  }

  private static double core(DeviceStream stream, DeviceBuffer buffer, int fills, WaitMode mode) {
    for (int i = 0; i < fills; i++) {
      buffer.fill((byte) i);
    }
    ThreadMXBean threads = ManagementFactory.getThreadMXBean();
    long used = threads.getCurrentThreadCpuTime();
    long start = System.nanoTime();
    stream.reached().await(mode);
    long end = System.nanoTime();
    return Math.min(1, (double) (threads.getCurrentThreadCpuTime() - used) / (end - start));
  }

  /** Whether the thread did what the mode says. One that blocks may do so in any way. */
  boolean isAsSaid() {
    return mode != WaitMode.NONBLOCKING || core < PARKS_MAX;
  }

  /** {@code nonblocking 1 % of a core}, say. */
  String text() {
    return String.format(
        Locale.ROOT,
        "%s %.0f %% of a core%s",
        mode.name().toLowerCase(Locale.ROOT),
        100 * core,
        isAsSaid() ? "" : " (it should park)");
  }
}
