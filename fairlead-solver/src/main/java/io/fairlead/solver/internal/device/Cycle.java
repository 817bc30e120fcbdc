package io.fairlead.solver.internal.device;

import io.fairlead.device.Kernel;
import io.fairlead.memory.DeviceBuffer;
import java.util.List;
import java.util.Objects;

/**
 * One V-cycle from a zero guess: smooth, restrict the residual, solve on the coarser level, add the
 * correction, smooth. Only enqueues, apart from what {@link Exchange} waits for. Confined to the
 * rank's task.
 *
 * <p>The first smoothing of a zero guess is a division by the diagonal; whatever makes a right-hand
 * side makes it too, in the same kernel, into the level's {@code first} vector.
 */
final class Cycle {
  private final RankPart part;
  private final SolverKernels kernels;
  private final Vectors<DeviceBuffer> vectors;
  private final Exchange exchange;

  Cycle(RankPart part, Vectors<DeviceBuffer> vectors, Exchange exchange) {
    this.part = part;
    this.kernels = part.kernels();
    this.vectors = vectors;
    this.exchange = exchange;
  }

  /** The first smoothing where no kernel has made it: {@code first = gain D⁻¹ b}. */
  void smoothFromZero(int l, DeviceBuffer b) {
    RankLevel level = part.levels().get(l);
    kernels.scale.launch(
        kernels.grids.items(level.rows()),
        b,
        level.inverseDiagonal(),
        vectors.levels().get(l).first(),
        level.smoother().first());
  }

  /**
   * Runs the cycle from level {@code l} on.
   *
   * @param b the level's right-hand side, whose first smoothing is there already
   * @return the vector that holds the result
   */
  DeviceBuffer run(int l, DeviceBuffer b) {
    if (l == part.last()) {
      return solveCoarsest(l, b);
    }
    RankLevel level = part.levels().get(l);
    Vectors.OfLevel<DeviceBuffer> v = vectors.levels().get(l);
    MatrixPart prolong = Objects.requireNonNull(level.prolong(), "a level without a next");
    DeviceBuffer x = smoothOn(l, b, v.first(), v.second(), true);
    DeviceBuffer spare = x == v.first() ? v.second() : v.first();
    restrictResidual(l, b, x);
    DeviceBuffer correction = run(l + 1, vectors.levels().get(l + 1).rightHandSide());
    exchange.ghosts(correction, prolong);
    multiply(kernels.prolong, prolong, correction, x);
    smoothOnce(l, b, x, x, spare, 1.0, 0.0, level.smoother().first());
    return smoothOn(l, b, spare, x, false);
  }

  /**
   * The steps after the first.
   *
   * @param x the first iterate
   * @param spare the iterate before it, and where the next one goes
   * @param fromZero whether the iterate before was zero, so that nobody wrote it
   * @return whichever of the two holds the last iterate
   */
  private DeviceBuffer smoothOn(
      int l, DeviceBuffer b, DeviceBuffer x, DeviceBuffer spare, boolean fromZero) {
    DeviceBuffer now = x;
    DeviceBuffer next = spare;
    List<Smoother.Step> steps = part.levels().get(l).smoother().rest();
    for (int k = 0; k < steps.size(); k++) {
      Smoother.Step step = steps.get(k);
      boolean afterZero = fromZero && k == 0;
      DeviceBuffer old = afterZero ? now : next;
      double ofOld = afterZero ? 0.0 : step.ofOld();
      smoothOnce(l, b, now, old, next, step.ofX(), ofOld, step.gain());
      DeviceBuffer last = now;
      now = next;
      next = last;
    }
    return now;
  }

  private void smoothOnce(
      int l,
      DeviceBuffer b,
      DeviceBuffer x,
      DeviceBuffer old,
      DeviceBuffer y,
      double ofX,
      double ofOld,
      double gain) {
    RankLevel level = part.levels().get(l);
    MatrixPart a = matrix(level);
    exchange.ghosts(x, a);
    kernels.smooth.launch(
        kernels.grids.rows(a),
        a.slicePtr(),
        a.colIdx(),
        a.values(),
        a.order(),
        a.rows(),
        x,
        old,
        b,
        level.inverseDiagonal(),
        y,
        ofX,
        ofOld,
        gain);
  }

  private void restrictResidual(int l, DeviceBuffer b, DeviceBuffer x) {
    RankLevel level = part.levels().get(l);
    DeviceBuffer residual = vectors.levels().get(l).residual();
    MatrixPart restrict = Objects.requireNonNull(level.restrict(), "a level without a next");
    exchange.ghosts(x, matrix(level));
    residual(matrix(level), x, b, residual);
    exchange.ghosts(residual, restrict);
    if (l + 1 == part.distributed() && part.ranks() > 1) {
      restrictAndGather(l + 1, restrict, residual);
    } else {
      restrictOn(l + 1, restrict, residual);
    }
  }

  private void restrictOn(int next, MatrixPart restrict, DeviceBuffer residual) {
    RankLevel coarse = part.levels().get(next);
    Vectors.OfLevel<DeviceBuffer> v = vectors.levels().get(next);
    kernels.restrict.launch(
        kernels.grids.rows(restrict),
        restrict.slicePtr(),
        restrict.colIdx(),
        restrict.values(),
        restrict.order(),
        restrict.rows(),
        residual,
        v.rightHandSide(),
        coarse.inverseDiagonal(),
        v.first(),
        coarse.smoother().first());
  }

  private void restrictAndGather(int next, MatrixPart restrict, DeviceBuffer residual) {
    DeviceBuffer whole = vectors.levels().get(next).rightHandSide();
    multiply(kernels.apply, restrict, residual, vectors.gatherPart());
    exchange.gather(vectors.gatherPart(), whole);
    smoothFromZero(next, whole);
  }

  /** {@code y = b − A x}; the ghosts of x are there. */
  void residual(MatrixPart a, DeviceBuffer x, DeviceBuffer b, DeviceBuffer y) {
    kernels.residual.launch(
        kernels.grids.rows(a), a.slicePtr(), a.colIdx(), a.values(), a.order(), a.rows(), x, b, y);
  }

  private void multiply(Kernel kernel, MatrixPart m, DeviceBuffer x, DeviceBuffer y) {
    kernel.launch(
        kernels.grids.rows(m), m.slicePtr(), m.colIdx(), m.values(), m.order(), m.rows(), x, y);
  }

  private DeviceBuffer solveCoarsest(int l, DeviceBuffer b) {
    Vectors.OfLevel<DeviceBuffer> v = vectors.levels().get(l);
    DeviceBuffer inverse = part.inverse();
    if (inverse == null) {
      return smoothOn(l, b, v.first(), v.second(), true);
    }
    DeviceBuffer whole = b;
    if (part.ranks() > 1 && l < part.distributed()) {
      exchange.gather(b, vectors.gathered());
      whole = vectors.gathered();
    }
    int rows = part.inverseRows();
    int columns = (int) (whole.bytes() / Double.BYTES);
    kernels.dense.launch(
        kernels.grids.dense(rows, columns), inverse, whole, v.first(), rows, columns);
    return v.first();
  }

  private static MatrixPart matrix(RankLevel level) {
    return Objects.requireNonNull(level.a(), "multigrid needs the matrix of every level");
  }
}
