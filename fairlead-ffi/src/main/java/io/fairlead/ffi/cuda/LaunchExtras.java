package io.fairlead.ffi.cuda;

import io.fairlead.device.spi.DeviceFeatures;
import io.fairlead.device.spi.DriverException;
import io.fairlead.device.spi.Grid;
import java.lang.foreign.Arena;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemoryLayout.PathElement;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import org.jspecify.annotations.Nullable;

/**
 * What a launch of a kernel may ask for beyond blocks of threads: that all of them run at once,
 * clusters of blocks, and more shared memory than a kernel has at first.
 *
 * <pre>
 * field        | writer                          | reader | mode, guard
 * sharedRaised | the first launch with so much   | any    | volatile: two may do the same at once
 * </pre>
 */
final class LaunchExtras {
  private static final int ATTRIBUTE_COOPERATIVE = 2;
  private static final int ATTRIBUTE_CLUSTER = 4;

  private static final int FUNCTION_SHARED_BYTES = 1;
  private static final int FUNCTION_DYNAMIC_SHARED_BYTES_MAX = 8;

  /** What every kernel may use without asking. */
  private static final int SHARED_BYTES = 48 << 10;

  // --- CUlaunchConfig and CUlaunchAttribute of cuda.h -------------------------------------------

  private static final MemoryLayout CONFIG =
      MemoryLayout.structLayout(
          ValueLayout.JAVA_INT.withName("gridDimX"),
          ValueLayout.JAVA_INT.withName("gridDimY"),
          ValueLayout.JAVA_INT.withName("gridDimZ"),
          ValueLayout.JAVA_INT.withName("blockDimX"),
          ValueLayout.JAVA_INT.withName("blockDimY"),
          ValueLayout.JAVA_INT.withName("blockDimZ"),
          ValueLayout.JAVA_INT.withName("sharedMemBytes"),
          MemoryLayout.paddingLayout(4),
          ValueLayout.JAVA_LONG.withName("hStream"),
          ValueLayout.JAVA_LONG.withName("attrs"),
          ValueLayout.JAVA_INT.withName("numAttrs"),
          MemoryLayout.paddingLayout(4));

  private static final long ATTRIBUTE_BYTES = 72;
  private static final long ATTRIBUTE_VALUE = 8;
  private static final int ATTRIBUTES_MAX = 2;

  private final CudaContext context;
  private final String name;
  private final long function;
  private volatile boolean sharedRaised;

  LaunchExtras(CudaContext context, String name, long function) {
    this.context = context;
    this.name = name;
    this.function = function;
  }

  // --- checks -----------------------------------------------------------------------------------

  /** Refuses what the device cannot do, and makes ready what it has to be told before. */
  void check(Grid grid) {
    DeviceFeatures features = context.device.features();
    if (grid.isCooperative() && !features.cooperative()) {
      throw unsupported("cooperative launches", "launch it once for each of its phases");
    }
    if (grid.cluster() > 1 && !features.clusters()) {
      throw unsupported("clusters, which sm_90 and newer have", "launch it without withCluster()");
    }
    if (grid.sharedBytes() > 0) {
      checkShared(grid, features);
    }
  }

  private DriverException unsupported(String what, String instead) {
    return CudaApi.unsupported(
        "kernel "
            + name
            + ": device "
            + context.ordinal
            + " ("
            + context.device.name()
            + ", "
            + context.device.features().architectureName()
            + ") has no "
            + what
            + "; "
            + instead,
        null);
  }

  private void checkShared(Grid grid, DeviceFeatures features) {
    if (grid.sharedBytes() > Math.max(SHARED_BYTES, features.sharedBytesMax())) {
      throw Status.invalidValue(
          "kernel "
              + name
              + " is launched with "
              + grid.sharedBytes()
              + " bytes of shared memory, and a block of this device has at most "
              + features.sharedBytesMax()
              + ", the kernel's own arrays included; take less for each block");
    }
    if (!sharedRaised && context.api.launches().hasFunctionSetting()) {
      raiseShared(grid, features);
    }
  }

  /**
   * Lets the kernel use all there is beside its own arrays: once, since it costs nothing to have.
   */
  private void raiseShared(Grid grid, DeviceFeatures features) {
    LaunchApi api = context.api.launches();
    long previous = Current.bind(context.api, context.raw);
    Scratch scratch = Scratch.take();
    try {
      context.check(
          context.api.funcGetAttribute(scratch.answer(), FUNCTION_SHARED_BYTES, function),
          "cuFuncGetAttribute");
      int own = scratch.intAnswer();
      if (own + grid.sharedBytes() <= SHARED_BYTES) {
        return;
      }
      context.check(
          api.funcSetAttribute(
              function, FUNCTION_DYNAMIC_SHARED_BYTES_MAX, features.sharedBytesMax() - own),
          "cuFuncSetAttribute");
      sharedRaised = true;
    } finally {
      scratch.giveBack();
      Current.restore(context.api, context.raw, previous);
    }
  }

  // --- launch -----------------------------------------------------------------------------------

  void launch(CudaStream stream, Grid grid, int blocks, long pointers) {
    LaunchApi api = context.api.launches();
    if (!api.hasLaunchAttributes()) {
      throw CudaApi.unsupported(
          "cooperative launches and clusters need a driver of CUDA 11.8 or newer, and this one is "
              + context.api.version(),
          null);
    }
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment config = config(arena, stream.raw, grid, blocks);
      int status = api.launchKernelEx(config.address(), function, pointers, 0);
      if (status != Status.SUCCESS) {
        throw refused(status, grid, blocks);
      }
    }
  }

  private DriverException refused(int status, Grid grid, int blocks) {
    DriverException refusal = context.failed(status, "cuLaunchKernelEx(" + name + ")");
    return status == DriverException.COOPERATIVE_LAUNCH_TOO_LARGE
        ? Status.of(context.api, status, "cuLaunchKernelEx(" + name + ")", tooLarge(grid, blocks))
        : refusal;
  }

  private String tooLarge(Grid grid, int blocks) {
    Long resident = residentBlocksOrNull(grid);
    return blocks
        + " blocks of "
        + grid.block()
        + " threads do not fit at once"
        + (resident == null ? "" : "; the device holds " + resident + " of this kernel")
        + ". Launch at most as many as Kernel.residentBlocks says, and let each thread loop over"
        + " its items";
  }

  /** A CUlaunchConfig. */
  static MemorySegment config(Arena arena, long stream, Grid grid, int blocks) {
    MemorySegment attributes = arena.allocate(ATTRIBUTES_MAX * ATTRIBUTE_BYTES, Long.BYTES);
    int count = 0;
    if (grid.isCooperative()) {
      attribute(attributes, count++, ATTRIBUTE_COOPERATIVE, 1);
    }
    if (grid.cluster() > 1) {
      attribute(attributes, count++, ATTRIBUTE_CLUSTER, grid.cluster(), 1, 1);
    }
    MemorySegment config = arena.allocate(CONFIG);
    setInt(config, "gridDimX", blocks);
    setInt(config, "gridDimY", 1);
    setInt(config, "gridDimZ", 1);
    setInt(config, "blockDimX", grid.block());
    setInt(config, "blockDimY", 1);
    setInt(config, "blockDimZ", 1);
    setInt(config, "sharedMemBytes", grid.sharedBytes());
    setLong(config, "hStream", stream);
    setLong(config, "attrs", attributes.address());
    setInt(config, "numAttrs", count);
    return config;
  }

  private static void attribute(MemorySegment all, int index, int id, int... values) {
    long at = index * ATTRIBUTE_BYTES;
    all.set(ValueLayout.JAVA_INT, at, id);
    for (int i = 0; i < values.length; i++) {
      all.set(ValueLayout.JAVA_INT, at + ATTRIBUTE_VALUE + 4L * i, values[i]);
    }
  }

  private static void setInt(MemorySegment config, String field, int value) {
    config.set(ValueLayout.JAVA_INT, CONFIG.byteOffset(PathElement.groupElement(field)), value);
  }

  private static void setLong(MemorySegment config, String field, long value) {
    config.set(ValueLayout.JAVA_LONG, CONFIG.byteOffset(PathElement.groupElement(field)), value);
  }

  // --- how much fits ----------------------------------------------------------------------------

  long residentBlocks(Grid grid) {
    check(grid);
    Long found = residentBlocksOrNull(grid);
    if (found == null) {
      throw CudaApi.unsupported(
          "the driver does not say how many blocks of kernel " + name + " fit at once", null);
    }
    return found;
  }

  private @Nullable Long residentBlocksOrNull(Grid grid) {
    long previous = Current.bind(context.api, context.raw);
    try {
      return grid.cluster() > 1 ? residentInClusters(grid) : residentAlone(grid);
    } finally {
      Current.restore(context.api, context.raw, previous);
    }
  }

  private @Nullable Long residentAlone(Grid grid) {
    LaunchApi api = context.api.launches();
    Scratch scratch = Scratch.take();
    try {
      return api.hasOccupancy()
              && api.maxActiveBlocks(scratch.answer(), function, grid.block(), grid.sharedBytes())
                  == Status.SUCCESS
          ? (long) scratch.intAnswer() * context.device.workers()
          : null;
    } finally {
      scratch.giveBack();
    }
  }

  private @Nullable Long residentInClusters(Grid grid) {
    LaunchApi api = context.api.launches();
    Scratch scratch = Scratch.take();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment config = config(arena, 0, grid, grid.cluster());
      return api.hasClusterOccupancy()
              && api.maxActiveClusters(scratch.answer(), function, config.address())
                  == Status.SUCCESS
          ? (long) scratch.intAnswer() * grid.cluster()
          : null;
    } finally {
      scratch.giveBack();
    }
  }
}
