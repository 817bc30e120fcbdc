package io.fairlead.solver.internal.device;

import static io.fairlead.device.Param.F64;
import static io.fairlead.device.Param.I32;
import static io.fairlead.device.Param.I8;
import static io.fairlead.device.Param.in;
import static io.fairlead.device.Param.inOut;
import static io.fairlead.device.Param.out;

import io.fairlead.device.Kernel;
import io.fairlead.device.KernelModule;
import io.fairlead.device.ModuleSource;
import io.fairlead.device.Param;
import io.fairlead.device.spi.ModuleImage;
import io.fairlead.memory.Device;
import java.util.Arrays;
import java.util.List;

/**
 * The kernels of the solver, loaded on one device: what each takes, and how its grid is cut. A
 * matrix ({@code A…}) is {@code (slicePtr, colIdx, values, order, rows)} of {@link SlicedRows}.
 *
 * <p>They exist in two forms, as {@link JavaKernels} for the host device and as {@link CudaKernels}
 * for a GPU, with the same parameters. What is one work item differs, so a launch takes its grid
 * from {@link #grids}, of the form that the device was found to take when the kernels were loaded.
 *
 * <p>Threads: any. Immutable once loaded; {@link #close} unloads the module.
 */
final class SolverKernels implements AutoCloseable {
  /** Items that one piece of a dot product sums in a row; fixed, so that sums are always alike. */
  static final int CHUNK = 1024;

  static final String APPLY = "apply";
  static final String APPLY_DOTS = "applyDots";
  static final String RESIDUAL = "residual";
  static final String SMOOTH = "smooth";
  static final String RESTRICT = "restrict";
  static final String PROLONG = "prolong";
  static final String DENSE = "dense";
  static final String SCALE = "scale";
  static final String ADD_SCALED = "addScaled";
  static final String UPDATE = "update";
  static final String DOTS = "dots";
  static final String DOT = "dot";
  static final String SUM = "sum";
  static final String PACK = "pack";

  /** What {@link #SUM} does once the sums are there: nothing more. */
  static final int STEP_NONE = 0;

  /** … α and the square of the residual that it leads to. */
  static final int STEP_ALPHA = 1;

  /** … β, and r·z moves on. */
  static final int STEP_BETA = 2;

  private static final String NAME = "fairlead-solver";

  private final KernelModule module;

  /** How launches of these kernels are cut. */
  final KernelGrids grids;

  /** {@code (A…, x, out y)}. */
  final Kernel apply;

  /** {@code (A…, p, r, out q, out partials)}, over chunks. */
  final Kernel applyDots;

  /** {@code (A…, x, b, out y)}. */
  final Kernel residual;

  /** {@code (A…, x, old, b, D⁻¹, out y, cx, cold, gain)}. */
  final Kernel smooth;

  /** {@code (R…, x, out y, D⁻¹, out y1, gain)}. */
  final Kernel restrict;

  /** {@code (P…, x, inOut y)}. */
  final Kernel prolong;

  /** {@code (M, x, out y, rows, columns)}. */
  final Kernel dense;

  /** {@code (x, D⁻¹, out y, gain)}. */
  final Kernel scale;

  /** {@code (factor, slot, scalars, x, inOut y)}: {@code y = x + factor · scalars[slot] · y}. */
  final Kernel addScaled;

  /**
   * {@code (factor, slot, scalars, p, q, D⁻¹, gain, inOut x, inOut r, out z, out partials, n)},
   * over chunks.
   */
  final Kernel update;

  /** {@code (p, r, q, out partials, n)}, over chunks. */
  final Kernel dots;

  /** {@code (x, y, inOut partials, row, n)}, over chunks. */
  final Kernel dot;

  /** {@code (partials, inOut scalars, chunks, count, slot, step)}; count is at most 3. */
  final Kernel sum;

  /** {@code (index, x, out y)}. */
  final Kernel pack;

  private SolverKernels(KernelModule module, KernelGrids grids) {
    this.module = module;
    this.grids = grids;
    apply = matrixKernel(APPLY, in(F64), out(F64));
    applyDots = matrixKernel(APPLY_DOTS, in(F64), in(F64), out(F64), out(F64));
    residual = matrixKernel(RESIDUAL, in(F64), in(F64), out(F64));
    smooth = matrixKernel(SMOOTH, in(F64), in(F64), in(F64), in(F64), out(F64), F64, F64, F64);
    restrict = matrixKernel(RESTRICT, in(F64), out(F64), in(F64), out(F64), F64);
    prolong = matrixKernel(PROLONG, in(F64), inOut(F64));
    dense = module.kernel(DENSE, in(F64), in(F64), out(F64), I32, I32);
    scale = module.kernel(SCALE, in(F64), in(F64), out(F64), F64);
    addScaled = module.kernel(ADD_SCALED, F64, I32, in(F64), in(F64), inOut(F64));
    update =
        module.kernel(
            UPDATE,
            F64,
            I32,
            in(F64),
            in(F64),
            in(F64),
            in(F64),
            F64,
            inOut(F64),
            inOut(F64),
            out(F64),
            out(F64),
            I32);
    dots = module.kernel(DOTS, in(F64), in(F64), in(F64), out(F64), I32);
    dot = module.kernel(DOT, in(F64), in(F64), inOut(F64), I32, I32);
    sum = module.kernel(SUM, in(F64), inOut(F64), I32, I32, I32, I32);
    pack = module.kernel(PACK, in(I32), in(F64), out(F64));
  }

  private Kernel matrixKernel(String name, Param... rest) {
    Param[] matrix = {in(I32), in(I32), in(F64), in(I8), I32};
    Param[] all = Arrays.copyOf(matrix, matrix.length + rest.length);
    System.arraycopy(rest, 0, all, matrix.length, rest.length);
    return module.kernel(name, all);
  }

  /** Loads them. Blocks its task while the driver loads the module. */
  static SolverKernels load(Device device) {
    ModuleImage java = new ModuleImage.Java(JavaKernels.ALL);
    return device.context().driver().accepts(java)
        ? load(device, List.of(java), new HostGrids())
        : load(device, CudaKernels.images(), new GpuGrids());
  }

  private static SolverKernels load(Device device, List<ModuleImage> images, KernelGrids grids) {
    KernelModule module = device.load(new ModuleSource(NAME, images));
    return new SolverKernels(module, grids);
  }

  /** In which form they were loaded: {@code prebuilt machine code}. */
  String form() {
    return CudaKernels.describe(module.image());
  }

  /** The pieces of a dot product of this many items; at least one, so that every sum is written. */
  static int chunks(int items) {
    return Math.max(1, (items + CHUNK - 1) / CHUNK);
  }

  @Override
  public void close() {
    module.close();
  }
}
