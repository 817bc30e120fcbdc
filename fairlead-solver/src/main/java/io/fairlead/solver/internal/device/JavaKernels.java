package io.fairlead.solver.internal.device;

import io.fairlead.device.spi.JavaKernel;
import io.fairlead.device.spi.KernelArguments;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.DoubleBuffer;
import java.nio.IntBuffer;
import java.util.Map;

/**
 * The solver's kernels as Java code, for the host device. {@link SolverKernels} has their names and
 * parameters, {@link HostGrids} what one work item is. The same in CUDA C++ is {@link CudaKernels}:
 * what is changed here must change there.
 *
 * <p><b>Order of sums.</b> A row's sum runs in the order of its entries; a dot product sums {@link
 * SolverKernels#CHUNK} items in a row, and one work item adds the chunks in order. Nothing depends
 * on how the grid is cut, so results are the same bit for bit for any number of workers.
 *
 * <p><b>Speed.</b> Every product with a matrix goes through {@link RowSums}, a block of rows at a
 * time, and then through a short loop of the kernel's own. The compiler so meets one hot method,
 * called often, instead of many hot loops called seldom: a process that has just started runs at
 * full speed much sooner. Vectors are read as {@link DoubleBuffer}s, whose one bounds check costs
 * half of a memory segment's on the scattered reads of a sparse product. A loop over items compares
 * an {@code int} with an {@code int}: with a {@code long} end it keeps all its checks.
 */
final class JavaKernels {
  private static final int BLOCKS_PER_CHUNK = SolverKernels.CHUNK / RowSums.ROWS;

  private JavaKernels() {}

  static final Map<String, JavaKernel> ALL =
      Map.ofEntries(
          Map.entry(SolverKernels.APPLY, JavaKernels::apply),
          Map.entry(SolverKernels.APPLY_DOTS, JavaKernels::applyDots),
          Map.entry(SolverKernels.RESIDUAL, JavaKernels::residual),
          Map.entry(SolverKernels.SMOOTH, JavaKernels::smooth),
          Map.entry(SolverKernels.RESTRICT, JavaKernels::restrict),
          Map.entry(SolverKernels.PROLONG, JavaKernels::prolong),
          Map.entry(SolverKernels.DENSE, JavaKernels::dense),
          Map.entry(SolverKernels.SCALE, JavaKernels::scale),
          Map.entry(SolverKernels.ADD_SCALED, JavaKernels::addScaled),
          Map.entry(SolverKernels.UPDATE, JavaKernels::update),
          Map.entry(SolverKernels.DOTS, JavaKernels::dots),
          Map.entry(SolverKernels.DOT, JavaKernels::dot),
          Map.entry(SolverKernels.SUM, JavaKernels::sum),
          Map.entry(SolverKernels.PACK, JavaKernels::pack));

  // --- products with a sparse matrix: arguments 0 to 5 are those of RowSums; one work item is a
  // block

  /** {@code y = A x}. */
  private static void apply(KernelArguments a, long begin, long end) {
    RowSums rows = new RowSums(a);
    DoubleBuffer y = doubles(a, 6);
    for (int block = (int) begin; block < end; block++) {
      int first = block * RowSums.ROWS;
      int count = rows.compute(block);
      y.put(first, rows.sums, 0, count);
    }
  }

  /** {@code q = A p}, and each chunk's part of {@code p·q}, {@code r·q} and {@code q·q}. */
  private static void applyDots(KernelArguments a, long begin, long end) {
    RowSums rows = new RowSums(a);
    DoubleBuffer p = doubles(a, 5);
    DoubleBuffer r = doubles(a, 6);
    DoubleBuffer q = doubles(a, 7);
    DoubleBuffer partials = doubles(a, 8);
    int n = a.i32(4);
    int chunks = SolverKernels.chunks(n);
    Dots dots = new Dots();
    for (int chunk = (int) begin; chunk < end; chunk++) {
      dots.clear();
      int last = Math.min(SlicedRows.blocks(n), (chunk + 1) * BLOCKS_PER_CHUNK);
      for (int block = chunk * BLOCKS_PER_CHUNK; block < last; block++) {
        int first = block * RowSums.ROWS;
        int count = rows.compute(block);
        q.put(first, rows.sums, 0, count);
        dots.add(p, r, rows.sums, first, count);
      }
      dots.store(partials, chunk, chunks);
    }
  }

  /** {@code y = b − A x}. */
  private static void residual(KernelArguments a, long begin, long end) {
    RowSums rows = new RowSums(a);
    DoubleBuffer b = doubles(a, 6);
    DoubleBuffer y = doubles(a, 7);
    for (int block = (int) begin; block < end; block++) {
      int first = block * RowSums.ROWS;
      int count = rows.compute(block);
      subtractFrom(b, rows.sums, first, count);
      y.put(first, rows.sums, 0, count);
    }
  }

  private static void subtractFrom(DoubleBuffer b, double[] sums, int first, int count) {
    for (int i = 0; i < count; i++) {
      sums[i] = b.get(first + i) - sums[i];
    }
  }

  /** {@code y = cx x + cold old + gain D⁻¹ (b − A x)}; y may be the memory of old. */
  private static void smooth(KernelArguments a, long begin, long end) {
    RowSums rows = new RowSums(a);
    Smoothing step = new Smoothing(a);
    DoubleBuffer y = doubles(a, 9);
    for (int block = (int) begin; block < end; block++) {
      int first = block * RowSums.ROWS;
      int count = rows.compute(block);
      step.finish(rows.sums, first, count);
      y.put(first, rows.sums, 0, count);
    }
  }

  private static final class Smoothing {
    private final DoubleBuffer x;
    private final DoubleBuffer old;
    private final DoubleBuffer b;
    private final DoubleBuffer inverse;
    private final double ofX;
    private final double ofOld;
    private final double gain;

    Smoothing(KernelArguments a) {
      x = doubles(a, 5);
      old = doubles(a, 6);
      b = doubles(a, 7);
      inverse = doubles(a, 8);
      ofX = a.f64(10);
      ofOld = a.f64(11);
      gain = a.f64(12);
    }

    void finish(double[] sums, int first, int count) {
      for (int i = 0; i < count; i++) {
        int at = first + i;
        double correction = gain * inverse.get(at) * (b.get(at) - sums[i]);
        sums[i] = ofX * x.get(at) + ofOld * old.get(at) + correction;
      }
    }
  }

  /** {@code y = R x}, and {@code y1 = gain D⁻¹ y}: the first smoothing of a zero guess. */
  private static void restrict(KernelArguments a, long begin, long end) {
    RowSums rows = new RowSums(a);
    DoubleBuffer y = doubles(a, 6);
    DoubleBuffer inverse = doubles(a, 7);
    DoubleBuffer y1 = doubles(a, 8);
    double gain = a.f64(9);
    for (int block = (int) begin; block < end; block++) {
      int first = block * RowSums.ROWS;
      int count = rows.compute(block);
      y.put(first, rows.sums, 0, count);
      scaleInto(gain, inverse, rows.sums, y1, first, count);
    }
  }

  private static void scaleInto(
      double gain, DoubleBuffer inverse, double[] sums, DoubleBuffer y, int first, int count) {
    for (int i = 0; i < count; i++) {
      y.put(first + i, gain * inverse.get(first + i) * sums[i]);
    }
  }

  /** {@code y = y + P x}. */
  private static void prolong(KernelArguments a, long begin, long end) {
    RowSums rows = new RowSums(a);
    DoubleBuffer y = doubles(a, 6);
    for (int block = (int) begin; block < end; block++) {
      int first = block * RowSums.ROWS;
      int count = rows.compute(block);
      addInto(y, rows.sums, first, count);
    }
  }

  private static void addInto(DoubleBuffer y, double[] sums, int first, int count) {
    for (int i = 0; i < count; i++) {
      y.put(first + i, y.get(first + i) + sums[i]);
    }
  }

  // --- the coarsest level --------------------------------------------------------------------

  /** {@code y = M x} for a dense matrix by rows; four sums, so that additions need not wait. */
  private static void dense(KernelArguments a, long begin, long end) {
    DoubleBuffer m = doubles(a, 0);
    DoubleBuffer x = doubles(a, 1);
    DoubleBuffer y = doubles(a, 2);
    int columns = a.i32(4);
    int last = (int) end;
    for (int i = (int) begin; i < last; i++) {
      y.put(i, denseRow(m, x, i * columns, columns));
    }
  }

  private static double denseRow(DoubleBuffer m, DoubleBuffer x, int at, int n) {
    double s0 = 0.0;
    double s1 = 0.0;
    double s2 = 0.0;
    double s3 = 0.0;
    int j = 0;
    for (; j + 3 < n; j += 4) {
      s0 += m.get(at + j) * x.get(j);
      s1 += m.get(at + j + 1) * x.get(j + 1);
      s2 += m.get(at + j + 2) * x.get(j + 2);
      s3 += m.get(at + j + 3) * x.get(j + 3);
    }
    for (; j < n; j++) {
      s0 += m.get(at + j) * x.get(j);
    }
    return (s0 + s1) + (s2 + s3);
  }

  // --- vectors -------------------------------------------------------------------------------

  /** {@code y = gain D⁻¹ x}. */
  private static void scale(KernelArguments a, long begin, long end) {
    DoubleBuffer x = doubles(a, 0);
    DoubleBuffer inverse = doubles(a, 1);
    DoubleBuffer y = doubles(a, 2);
    double gain = a.f64(3);
    int last = (int) end;
    for (int i = (int) begin; i < last; i++) {
      y.put(i, gain * inverse.get(i) * x.get(i));
    }
  }

  /** {@code y = x + f y} with {@code f = factor · scalars[slot]}. */
  private static void addScaled(KernelArguments a, long begin, long end) {
    double f = scalar(a, 0);
    DoubleBuffer x = doubles(a, 3);
    DoubleBuffer y = doubles(a, 4);
    int last = (int) end;
    for (int i = (int) begin; i < last; i++) {
      y.put(i, x.get(i) + f * y.get(i));
    }
  }

  /** {@code factor · scalars[slot]}, from three arguments in this order: factor, slot, scalars. */
  private static double scalar(KernelArguments a, int index) {
    return a.f64(index) * doubles(a, index + 2).get(a.i32(index + 1));
  }

  /**
   * {@code x = x + α p; r = r − α q; z = gain D⁻¹ r}, and each chunk's part of {@code r·r} and
   * {@code r·z}.
   */
  private static void update(KernelArguments a, long begin, long end) {
    Update update = new Update(a);
    for (int chunk = (int) begin; chunk < end; chunk++) {
      update.chunk(chunk);
    }
  }

  private static final class Update {
    private final double alpha;
    private final double gain;
    private final DoubleBuffer p;
    private final DoubleBuffer q;
    private final DoubleBuffer inverse;
    private final DoubleBuffer x;
    private final DoubleBuffer r;
    private final DoubleBuffer z;
    private final DoubleBuffer partials;

    private final int n;

    Update(KernelArguments a) {
      alpha = scalar(a, 0);
      p = doubles(a, 3);
      q = doubles(a, 4);
      inverse = doubles(a, 5);
      gain = a.f64(6);
      x = doubles(a, 7);
      r = doubles(a, 8);
      z = doubles(a, 9);
      partials = doubles(a, 10);
      n = a.i32(11);
    }

    void chunk(int chunk) {
      int first = chunk * SolverKernels.CHUNK;
      int last = Math.min(n, first + SolverKernels.CHUNK);
      double rr = 0.0;
      double rz = 0.0;
      for (int i = first; i < last; i++) {
        x.put(i, x.get(i) + alpha * p.get(i));
        double ri = r.get(i) - alpha * q.get(i);
        double zi = gain * inverse.get(i) * ri;
        r.put(i, ri);
        z.put(i, zi);
        rr += ri * ri;
        rz += ri * zi;
      }
      partials.put(chunk, rr);
      partials.put(SolverKernels.chunks(n) + chunk, rz);
    }
  }

  /** Each chunk's part of {@code p·q}, {@code r·q} and {@code q·q}. */
  private static void dots(KernelArguments a, long begin, long end) {
    DoubleBuffer p = doubles(a, 0);
    DoubleBuffer r = doubles(a, 1);
    DoubleBuffer q = doubles(a, 2);
    DoubleBuffer partials = doubles(a, 3);
    int n = a.i32(4);
    Dots dots = new Dots();
    double[] block = new double[RowSums.ROWS];
    for (int chunk = (int) begin; chunk < end; chunk++) {
      dots.clear();
      int last = Math.min(n, (chunk + 1) * SolverKernels.CHUNK);
      for (int first = chunk * SolverKernels.CHUNK; first < last; first += RowSums.ROWS) {
        int count = Math.min(RowSums.ROWS, last - first);
        q.get(first, block, 0, count);
        dots.add(p, r, block, first, count);
      }
      dots.store(partials, chunk, SolverKernels.chunks(n));
    }
  }

  /** Three sums that run over one chunk. */
  private static final class Dots {
    private double pq;
    private double rq;
    private double qq;

    void clear() {
      pq = 0.0;
      rq = 0.0;
      qq = 0.0;
    }

    void add(DoubleBuffer p, DoubleBuffer r, double[] q, int first, int count) {
      double sumPq = pq;
      double sumRq = rq;
      double sumQq = qq;
      for (int i = 0; i < count; i++) {
        double qi = q[i];
        sumPq += p.get(first + i) * qi;
        sumRq += r.get(first + i) * qi;
        sumQq += qi * qi;
      }
      pq = sumPq;
      rq = sumRq;
      qq = sumQq;
    }

    void store(DoubleBuffer partials, int chunk, int chunks) {
      partials.put(chunk, pq);
      partials.put(chunks + chunk, rq);
      partials.put(2 * chunks + chunk, qq);
    }
  }

  /** Each chunk's part of {@code x·y}, in the row of the partials that is named. */
  private static void dot(KernelArguments a, long begin, long end) {
    DoubleBuffer x = doubles(a, 0);
    DoubleBuffer y = doubles(a, 1);
    DoubleBuffer partials = doubles(a, 2);
    int n = a.i32(4);
    int row = a.i32(3) * SolverKernels.chunks(n);
    for (int chunk = (int) begin; chunk < end; chunk++) {
      int first = chunk * SolverKernels.CHUNK;
      partials.put(row + chunk, dot(x, y, first, Math.min(n, first + SolverKernels.CHUNK)));
    }
  }

  private static double dot(DoubleBuffer x, DoubleBuffer y, int first, int last) {
    double sum = 0.0;
    for (int i = first; i < last; i++) {
      sum += x.get(i) * y.get(i);
    }
    return sum;
  }

  /**
   * Adds the chunks of some dot products, in order, into the scalars from a slot on; then takes the
   * step of the iteration that is named, so that the host need not wait for a scalar.
   */
  private static void sum(KernelArguments a, long begin, long end) {
    DoubleBuffer partials = doubles(a, 0);
    DoubleBuffer s = doubles(a, 1);
    int chunks = a.i32(2);
    int count = a.i32(3);
    int slot = a.i32(4);
    if (begin == 0 && end > 0) {
      for (int k = 0; k < count; k++) {
        s.put(slot + k, sumOf(partials, k * chunks, chunks));
      }
      step(a.i32(5), s);
    }
  }

  private static double sumOf(DoubleBuffer partials, int from, int count) {
    double sum = 0.0;
    for (int i = 0; i < count; i++) {
      sum += partials.get(from + i);
    }
    return sum;
  }

  private static void step(int step, DoubleBuffer s) {
    switch (step) {
      case SolverKernels.STEP_NONE -> {}
      case SolverKernels.STEP_ALPHA -> stepAlpha(s);
      case SolverKernels.STEP_BETA -> stepBeta(s);
      default -> throw new IllegalArgumentException("step " + step + " of the sum kernel");
    }
  }

  private static void stepAlpha(DoubleBuffer s) {
    double alpha = Recurrence.alpha(s.get(Slots.RZ), s.get(Slots.PQ));
    double predicted =
        Recurrence.nextSquare(s.get(Slots.RR), alpha, s.get(Slots.RQ), s.get(Slots.QQ));
    s.put(Slots.ALPHA, alpha);
    s.put(Slots.PREDICTED, predicted);
  }

  private static void stepBeta(DoubleBuffer s) {
    double next = s.get(Slots.NEXT_RZ);
    s.put(Slots.BETA, next / s.get(Slots.RZ));
    s.put(Slots.RZ, next);
  }

  /** {@code y[k] = x[index[k]]}. */
  private static void pack(KernelArguments a, long begin, long end) {
    IntBuffer index = ints(a, 0);
    DoubleBuffer x = doubles(a, 1);
    DoubleBuffer y = doubles(a, 2);
    int last = (int) end;
    for (int k = (int) begin; k < last; k++) {
      y.put(k, x.get(index.get(k)));
    }
  }

  // --- views ---------------------------------------------------------------------------------

  static DoubleBuffer doubles(KernelArguments a, int index) {
    return bytes(a.buffer(index)).asDoubleBuffer();
  }

  private static IntBuffer ints(KernelArguments a, int index) {
    return bytes(a.buffer(index)).asIntBuffer();
  }

  private static ByteBuffer bytes(MemorySegment segment) {
    return segment.asByteBuffer().order(ByteOrder.nativeOrder());
  }
}
