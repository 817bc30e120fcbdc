package io.fairlead.cli.bench;

import static java.lang.foreign.ValueLayout.JAVA_LONG;

import io.fairlead.comm.Blob;
import io.fairlead.comm.Comm;
import io.fairlead.memory.Device;
import io.fairlead.memory.DeviceBuffer;
import io.fairlead.runtime.Fairlead;
import io.fairlead.solver.CsrMatrix;
import io.fairlead.solver.Poisson;
import io.fairlead.solver.VCycleBenchmark;
import io.fairlead.task.WaitMode;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.Collections;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * Messages of device memory, and V-cycles on ranks with a device. As for {@link CommProbes}, each
 * method is called on both ranks, once for each world; rank 0 has the figures.
 */
final class CommDevices {
  private static final int SAMPLES = 500;
  private static final int WARM_UPS = 500;
  private static final int START_TAG = 21;
  private static final int ARRIVED_TAG = 22;
  private static final int CYCLES = 20;
  private static final int ROUNDS = 6;
  private static final int ROUNDS_QUICK = 2;
  private static final int GRID = 64;
  private static final int GRID_QUICK = 16;

  /** What is worked on before a message leaves: some 20 µs of a GPU's memory. */
  private static final long WORK_BYTES = 64L << 20;

  private static final long WORK_BYTES_QUICK = 1L << 20;

  private final Fairlead fairlead;
  private final Comm comm;
  private final int scale;

  CommDevices(Fairlead fairlead, Comm comm, int scale) {
    this.fairlead = fairlead;
    this.comm = comm;
    this.scale = scale;
  }

  private int rounds(int full) {
    return Math.max(5, full / scale);
  }

  // --- how soon a message leaves once its stream has come to it
  // -----------------------------------

  /**
   * Nanoseconds.
   *
   * @param sent from before the work until a message of its result has arrived at the other rank:
   *     the task has enqueued both, and waits for neither
   * @param spun until a task that spins on its stream has the same result in its memory
   * @param plain of the same message, from memory of the host, after as long a silence: the other
   *     rank has waited as long in all three
   */
  @SuppressWarnings("ArrayRecordComponent")
  record Starts(double[] sent, double[] spun, double[] plain) {
    /** What a message takes, in the middle, beyond who spins and then sends. */
    static double more(Samples sent, Samples spun, Samples plain) {
      return sent.median() - spun.median() - plain.median();
    }
  }

  /** Null on the other rank. */
  @Nullable Starts starts() {
    int samples = rounds(SAMPLES);
    int warmUps = rounds(WARM_UPS);
    comm.barrier().await();
    if (comm.rank() != 0) {
      for (int i = 0; i < 2 * (warmUps + samples); i++) {
        answerWhenItCame();
      }
      return null;
    }
    Device device = fairlead.device();
    try (DeviceBuffer work = device.allocate(scale > 1 ? WORK_BYTES_QUICK : WORK_BYTES);
        DeviceBuffer result = device.allocate(Long.BYTES)) {
      Starts starts = new Starts(new double[samples], new double[samples], new double[samples]);
      MemorySegment host = CommManagers.word();
      for (int i = -warmUps; i < samples; i++) {
        double sent = sent(work, result, i);
        double spun = spun(work, result, i, host);
        double plain = plain(host, (long) spun);
        if (i >= 0) {
          starts.sent[i] = sent;
          starts.spun[i] = spun;
          starts.plain[i] = plain;
        }
      }
      return starts;
    }
  }

  private static void work(DeviceBuffer work, DeviceBuffer result, int value) {
    work.fill((byte) value);
    result.fill((byte) value);
  }

  private double sent(DeviceBuffer work, DeviceBuffer result, int value) {
    long start = System.nanoTime();
    work(work, result, value);
    comm.send(1, START_TAG, null, Blob.of(result));
    return arrived() - start;
  }

  private double spun(DeviceBuffer work, DeviceBuffer result, int value, MemorySegment to) {
    long start = System.nanoTime();
    work(work, result, value);
    result.downloadTo(to).await(WaitMode.SPIN);
    return System.nanoTime() - start;
  }

  private double plain(MemorySegment from, long silence) {
    long start = System.nanoTime() + silence;
    while (System.nanoTime() - start < 0) {
      Thread.onSpinWait();
    }
    comm.send(1, START_TAG, from);
    return arrived() - start;
  }

  /** By the clock that both ranks of a machine share. */
  private long arrived() {
    MemorySegment at = CommManagers.word();
    comm.receive(1, ARRIVED_TAG, at).await();
    return at.get(JAVA_LONG, 0);
  }

  private void answerWhenItCame() {
    MemorySegment word = CommManagers.word();
    comm.receive(0, START_TAG, word).await();
    word.set(JAVA_LONG, 0, System.nanoTime());
    comm.send(0, ARRIVED_TAG, word).await();
  }

  // --- V-cycles ---------------------------------------------------------------------------------

  /** Seconds of a cycle, by how the ranks' tasks wait; rounds in turn, each begins with another. */
  Map<WaitMode, double[]> vcycles() {
    int rounds = scale > 1 ? ROUNDS_QUICK : ROUNDS;
    CsrMatrix matrix = Poisson.grid3d(scale > 1 ? GRID_QUICK : GRID);
    Map<WaitMode, double[]> seconds = new EnumMap<>(WaitMode.class);
    for (WaitMode mode : WaitMode.values()) {
      seconds.put(mode, new double[rounds]);
    }
    try (VCycleBenchmark benchmark = VCycleBenchmark.setup(fairlead, comm, matrix)) {
      for (int round = -rounds; round < rounds; round++) {
        List<WaitMode> order = new ArrayList<>(List.of(WaitMode.values()));
        Collections.rotate(order, round);
        for (WaitMode mode : order) {
          double each = benchmark.run(CYCLES, mode).seconds() / CYCLES;
          double[] of = seconds.get(mode);
          if (round >= 0 && of != null) {
            of[round] = each;
          }
        }
      }
    }
    return comm.rank() == 0 ? seconds : Map.of();
  }
}
