package io.fairlead.solver.internal.device;

import io.fairlead.comm.Comm;
import io.fairlead.comm.ReduceOp;
import io.fairlead.device.HostBlock;
import io.fairlead.memory.DeviceBuffer;
import io.fairlead.task.Completion;
import java.lang.foreign.ValueLayout;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * The scalars of the iteration: dot products summed over chunks, and over ranks, and what follows
 * from them. Confined to the rank's task.
 *
 * <p>On one rank α and β are made on the device and the host only looks at what it has to decide
 * on, while the device goes on. On several ranks the sums come down, are added in the order of the
 * ranks, so that every rank has the same bits, and go back as kernel arguments.
 */
abstract sealed class Scalars {
  /** What the host decides on after the product with the direction. */
  record Step(double pq, double rz, double predicted) {}

  final RankPart part;
  final Vectors<DeviceBuffer> vectors;
  final Phases phases;
  final HostBlock down;
  private final int chunks;

  private Scalars(
      RankPart part, Vectors<DeviceBuffer> vectors, PinnedBlocks pinned, Phases phases) {
    this.part = part;
    this.vectors = vectors;
    this.phases = phases;
    this.down = pinned.take(8L * Slots.COUNT);
    this.chunks = SolverKernels.chunks(part.owned());
    double[] start = new double[Slots.COUNT];
    start[Slots.ONE] = 1.0;
    vectors.scalars().upload(start);
  }

  static Scalars of(
      RankPart part,
      Vectors<DeviceBuffer> vectors,
      @Nullable Comm comm,
      PinnedBlocks pinned,
      Phases phases) {
    return comm == null || part.ranks() == 1
        ? new OnDevice(part, vectors, pinned, phases)
        : new Reduced(part, vectors, comm, pinned, phases);
  }

  /** The first {@code count} dot products of the partials, over all ranks. Waits. */
  abstract double[] sums(int count);

  /** {@code p·q}, {@code r·q} and {@code q·q} are in the partials: makes α of them. */
  abstract void makeAlpha();

  /** What {@link #makeAlpha} found. Waits where that has not. */
  abstract Step step();

  /** {@code r·r} and {@code r·z} are in the partials: makes β of them. */
  abstract void makeBeta();

  /** As {@link #makeBeta}, for the first direction, which needs no β. */
  abstract void start();

  abstract double alphaFactor();

  abstract int alphaSlot();

  abstract double betaFactor();

  abstract int betaSlot();

  final void launchSum(int count, int slot, int step) {
    SolverKernels kernels = part.kernels();
    kernels.sum.launch(
        kernels.grids.sum(), vectors.partials(), vectors.scalars(), chunks, count, slot, step);
  }

  final double[] fetch(int slot, int count) {
    phases.device(vectors.scalars().slice(8L * slot, 8L * count).downloadTo(down));
    return read(count);
  }

  final double[] read(int count) {
    return down.segment().asSlice(0, 8L * count).toArray(ValueLayout.JAVA_DOUBLE);
  }

  /** One rank. */
  private static final class OnDevice extends Scalars {
    private @Nullable Completion<?> coming;

    OnDevice(RankPart part, Vectors<DeviceBuffer> vectors, PinnedBlocks pinned, Phases phases) {
      super(part, vectors, pinned, phases);
    }

    @Override
    double[] sums(int count) {
      launchSum(count, Slots.PQ, SolverKernels.STEP_NONE);
      return fetch(Slots.PQ, count);
    }

    @Override
    void makeAlpha() {
      launchSum(3, Slots.PQ, SolverKernels.STEP_ALPHA);
      coming = vectors.scalars().downloadTo(down);
    }

    @Override
    Step step() {
      phases.device(Objects.requireNonNull(coming, "step() before makeAlpha()"));
      double[] s = read(Slots.COUNT);
      return new Step(s[Slots.PQ], s[Slots.RZ], s[Slots.PREDICTED]);
    }

    @Override
    void makeBeta() {
      launchSum(2, Slots.RR, SolverKernels.STEP_BETA);
    }

    @Override
    void start() {
      makeBeta();
    }

    @Override
    double alphaFactor() {
      return 1.0;
    }

    @Override
    int alphaSlot() {
      return Slots.ALPHA;
    }

    @Override
    double betaFactor() {
      return 1.0;
    }

    @Override
    int betaSlot() {
      return Slots.BETA;
    }
  }

  /** Several ranks. */
  private static final class Reduced extends Scalars {
    private final Comm comm;
    private double rr;
    private double rz;
    private double alpha;
    private double beta;
    private Step step = new Step(Double.NaN, Double.NaN, Double.NaN);

    Reduced(
        RankPart part,
        Vectors<DeviceBuffer> vectors,
        Comm comm,
        PinnedBlocks pinned,
        Phases phases) {
      super(part, vectors, pinned, phases);
      this.comm = comm;
    }

    @Override
    double[] sums(int count) {
      launchSum(count, Slots.PQ, SolverKernels.STEP_NONE);
      double[] sums = fetch(Slots.PQ, count);
      phases.message(comm.allReduce(sums, ReduceOp.SUM));
      return sums;
    }

    @Override
    void makeAlpha() {
      double[] s = sums(3);
      alpha = Recurrence.alpha(rz, s[0]);
      step = new Step(s[0], rz, Recurrence.nextSquare(rr, alpha, s[1], s[2]));
    }

    @Override
    Step step() {
      return step;
    }

    @Override
    void makeBeta() {
      double[] s = sums(2);
      beta = s[1] / rz;
      rr = s[0];
      rz = s[1];
    }

    @Override
    void start() {
      makeBeta();
    }

    @Override
    double alphaFactor() {
      return alpha;
    }

    @Override
    int alphaSlot() {
      return Slots.ONE;
    }

    @Override
    double betaFactor() {
      return beta;
    }

    @Override
    int betaSlot() {
      return Slots.ONE;
    }
  }
}
