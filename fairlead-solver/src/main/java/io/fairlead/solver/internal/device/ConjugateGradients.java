package io.fairlead.solver.internal.device;

import io.fairlead.comm.Comm;
import io.fairlead.device.spi.Grid;
import io.fairlead.memory.DeviceBuffer;
import io.fairlead.solver.NotPositiveDefiniteException;
import io.fairlead.solver.Operator;
import io.fairlead.solver.SolveListener;
import java.lang.foreign.MemorySegment;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Preconditioned conjugate gradients, as one rank runs them. Confined to the rank's task. After a
 * failure on several ranks, the communicator must fail before {@link #close}; see {@link
 * PinnedBlocks}.
 *
 * <pre>
 *   q = A p                        with p·q, r·q, q·q         first reduction: α, and |r| to come
 *   x += α p; r −= α q             with r·r                   while the host looks at the first
 *   z = M r                        with r·z                   second reduction: β
 *   p = z + β p
 * </pre>
 *
 * <p>The square of the residual that a step leads to is predicted from the sums of the first
 * reduction, so that the host can decide before the preconditioner runs and there is no third
 * reduction. When the prediction is within the tolerance, the residual is computed anew from b and
 * x. If that does not confirm it, the new residual replaces the old one. Where it is close to what
 * was claimed, the directions are nearly conjugate still, and the iteration goes on; else it starts
 * anew. If that happens again and again without effect, the tolerance is below what rounding
 * allows, and it gives up.
 */
public final class ConjugateGradients implements AutoCloseable {
  /** A recurrence that claims less than this is not believed, however small the tolerance is. */
  private static final double ROUNDING = 0x1.0p-52;

  /** A residual that is so much larger than was claimed has little to do with the directions. */
  private static final double RESTART = 2.0;

  /** After so many confirmations that failed without halving the residual, more will not help. */
  private static final int FUTILE = 5;

  private final RankPart part;
  private final SolverKernels kernels;
  private final Vectors<DeviceBuffer> v;
  private final PinnedBlocks pinned;
  private final Exchange exchange;
  private final Scalars scalars;
  private final Cycle cycle;
  private final Phases phases = new Phases();
  private final Grid chunks;
  private final Grid items;
  private double norm;
  private double best = Double.POSITIVE_INFINITY;
  private int futile;

  /** How one solve ended. */
  public record Outcome(
      boolean converged, int iterations, double initialResidual, double relativeResidual) {}

  /** When one solve ends. */
  public record Goal(double tolerance, int maxIterations, SolveListener listener) {
    /** The same goal, for ranks whose progress nobody hears. */
    Goal silent() {
      return new Goal(tolerance, maxIterations, SolveListener.SILENT);
    }
  }

  /**
   * Prepares a solve.
   *
   * @param memory as large as {@link Workspace} says; stays the caller's
   * @param comm null on one rank
   */
  static ConjugateGradients open(RankPart part, DeviceBuffer memory, @Nullable Comm comm) {
    PinnedBlocks pinned = new PinnedBlocks(part.device());
    try {
      return new ConjugateGradients(part, memory, pinned, comm);
    } catch (RuntimeException | Error failure) {
      pinned.close();
      throw failure;
    }
  }

  private ConjugateGradients(
      RankPart part, DeviceBuffer memory, PinnedBlocks pinned, @Nullable Comm comm) {
    this.part = part;
    this.kernels = part.kernels();
    this.pinned = pinned;
    this.v = Workspace.cut(part, memory);
    this.exchange = new Exchange(part, v, comm, pinned, phases);
    this.scalars = Scalars.of(part, v, comm, pinned, phases);
    this.cycle = new Cycle(part, v, exchange);
    this.chunks = kernels.grids.chunks(part.owned());
    this.items = kernels.grids.items(part.owned());
  }

  Phases phases() {
    return phases;
  }

  boolean isFirst() {
    return part.rank() == 0;
  }

  /**
   * Solves for one right-hand side.
   *
   * @param b the right-hand side of all ranks
   * @param x the guess of all ranks, or zeros; this rank's block of it is replaced by the solution
   * @param zeroGuess whether x is zero
   * @throws NotPositiveDefiniteException with the iteration and the value that shows it
   */
  Outcome solve(double[] b, double[] x, boolean zeroGuess, Goal goal) {
    MemorySegment block = block(x);
    v.b().upload(block(b));
    if (zeroGuess) {
      v.x().fill((byte) 0);
    } else {
      v.x().upload(block);
    }
    Outcome outcome = iterate(zeroGuess, goal);
    owned(v.x()).downloadInto(block);
    exchange.finish();
    return outcome;
  }

  private MemorySegment block(double[] all) {
    return MemorySegment.ofArray(all)
        .asSlice(8L * part.rows().first(part.rank()), 8L * part.owned());
  }

  private DeviceBuffer owned(DeviceBuffer vector) {
    return vector.slice(0, 8L * part.owned());
  }

  private Outcome iterate(boolean zeroGuess, Goal goal) {
    norm = Math.sqrt(square(v.b()));
    if (norm == 0.0) {
      v.x().fill((byte) 0);
      return new Outcome(true, 0, 0.0, 0.0);
    }
    double initial = zeroGuess ? residualOfZero() : trueResidual();
    if (initial <= goal.tolerance()) {
      return new Outcome(true, 0, initial, initial);
    }
    smoothResidual();
    start();
    return iterate(initial, goal);
  }

  /** The first direction: downhill, as the preconditioner sees it. */
  private void start() {
    DeviceBuffer z = precondition(true);
    scalars.start();
    v.p().copyFrom(0, z, 0, 8L * part.owned());
  }

  private Outcome iterate(double initial, Goal goal) {
    double now = initial;
    double claimed = Math.max(goal.tolerance(), ROUNDING);
    for (int k = 1; k <= goal.maxIterations(); k++) {
      double predicted = step(k);
      goal.listener().iteration(k, predicted);
      now = predicted;
      boolean replaced = predicted <= claimed || k == goal.maxIterations();
      if (replaced) {
        now = trueResidual();
        if (now <= goal.tolerance()) {
          return new Outcome(true, k, initial, now);
        }
        if (k == goal.maxIterations() || isFutile(now)) {
          return new Outcome(false, k, initial, now);
        }
        smoothResidual();
      }
      if (now > RESTART * predicted) {
        start();
      } else {
        turn(replaced);
      }
    }
    return new Outcome(false, 0, initial, now);
  }

  /** Moves x and r along p, and returns the relative residual that this leads to. */
  private double step(int k) {
    multiplyDirection();
    scalars.makeAlpha();
    RankLevel finest = part.finest();
    kernels.update.launch(
        chunks,
        scalars.alphaFactor(),
        scalars.alphaSlot(),
        v.scalars(),
        v.p(),
        v.q(),
        finest.inverseDiagonal(),
        finest.smoother().first(),
        v.x(),
        v.r(),
        v.levels().getFirst().first(),
        v.partials(),
        part.owned());
    Scalars.Step step = scalars.step();
    requirePositive(step, k);
    return Math.sqrt(step.predicted()) / norm;
  }

  private void multiplyDirection() {
    MatrixPart a = part.finest().a();
    Operator operator = part.operator();
    if (operator != null) {
      operator.apply(owned(v.p()), v.q());
      kernels.dots.launch(chunks, v.p(), v.r(), v.q(), v.partials(), part.owned());
    } else {
      MatrixPart matrix = Objects.requireNonNull(a, "neither a matrix nor an operator");
      exchange.ghosts(v.p(), matrix);
      kernels.applyDots.launch(
          chunks,
          matrix.slicePtr(),
          matrix.colIdx(),
          matrix.values(),
          matrix.order(),
          matrix.rows(),
          v.p(),
          v.r(),
          v.q(),
          v.partials());
    }
  }

  private static void requirePositive(Scalars.Step step, int k) {
    if (!(step.rz() > 0)) {
      throw new NotPositiveDefiniteException(
          "the preconditioner is not positive definite: r·Mr is "
              + step.rz()
              + " in iteration "
              + k
              + "; expected a positive number. The matrix may be indefinite, or not symmetric",
          k,
          step.rz());
    }
    if (!(step.pq() > 0) || step.pq() == Double.POSITIVE_INFINITY) {
      throw new NotPositiveDefiniteException(
          "the matrix is not positive definite: p·Ap is "
              + step.pq()
              + " in iteration "
              + k
              + "; expected a positive number. Conjugate gradients need a symmetric positive"
              + " definite matrix: check signs, symmetry and boundary conditions",
          k,
          step.pq());
    }
  }

  /** The next direction. */
  private void turn(boolean replaced) {
    DeviceBuffer z = precondition(replaced);
    scalars.makeBeta();
    kernels.addScaled.launch(
        items, scalars.betaFactor(), scalars.betaSlot(), v.scalars(), z, v.p());
  }

  /**
   * {@code z = M r}, with {@code r·r} and {@code r·z} in the partials.
   *
   * @param fresh whether r was made other than by the update kernel, which makes both sums for a
   *     preconditioner that is done after the first smoothing
   */
  private DeviceBuffer precondition(boolean fresh) {
    DeviceBuffer z = v.levels().getFirst().first();
    if (part.multigrid()) {
      z = cycle.run(0, v.r());
    }
    if (part.multigrid() || fresh) {
      launchDot(v.r(), z, 1);
    }
    return z;
  }

  private void smoothResidual() {
    cycle.smoothFromZero(0, v.r());
  }

  /** {@code r = b} for x = 0. */
  private double residualOfZero() {
    v.r().copyFrom(v.b());
    return Math.sqrt(square(v.r())) / norm;
  }

  /** {@code r = b − A x}, computed anew, and its relative norm. */
  private double trueResidual() {
    MatrixPart a = part.finest().a();
    Operator operator = part.operator();
    if (operator != null) {
      operator.apply(owned(v.x()), v.r());
      kernels.addScaled.launch(items, -1.0, Slots.ONE, v.scalars(), v.b(), v.r());
    } else {
      MatrixPart matrix = Objects.requireNonNull(a, "neither a matrix nor an operator");
      exchange.ghosts(v.x(), matrix);
      cycle.residual(matrix, v.x(), v.b(), v.r());
    }
    return Math.sqrt(square(v.r())) / norm;
  }

  /** The square of a vector over all ranks, whose chunks stay in the first row of the partials. */
  private double square(DeviceBuffer vector) {
    launchDot(vector, vector, 0);
    return scalars.sums(1)[0];
  }

  private void launchDot(DeviceBuffer x, DeviceBuffer y, int row) {
    kernels.dot.launch(chunks, x, y, v.partials(), row, part.owned());
  }

  private boolean isFutile(double residual) {
    boolean halved = residual <= 0.5 * best;
    best = Math.min(best, residual);
    futile = halved ? 0 : futile + 1;
    return futile >= FUTILE;
  }

  // --- V-cycles alone ------------------------------------------------------------------------

  /**
   * Runs V-cycles as an iteration of their own, {@code x = x + M (b − A x)} from zero. Their time
   * begins when the right-hand side is there.
   */
  RankParts.Cycles cycles(double[] b, int count) {
    v.b().upload(block(b));
    v.x().fill((byte) 0);
    norm = Math.sqrt(square(v.b()));
    long start = System.nanoTime();
    double[] residuals = new double[count];
    residualOfZero();
    for (int k = 0; k < count; k++) {
      smoothResidual();
      DeviceBuffer z = cycle.run(0, v.r());
      kernels.addScaled.launch(items, 1.0, Slots.ONE, v.scalars(), z, v.x());
      residuals[k] = trueResidual();
    }
    long nanos = System.nanoTime() - start;
    exchange.finish();
    return new RankParts.Cycles(residuals, nanos);
  }

  @Override
  public void close() {
    pinned.close();
  }
}
