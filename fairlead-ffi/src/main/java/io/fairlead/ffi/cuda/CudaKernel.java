package io.fairlead.ffi.cuda;

import io.fairlead.device.spi.DriverException;
import io.fairlead.device.spi.Grid;
import io.fairlead.device.spi.KernelArguments;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Arrays;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/**
 * A kernel of a module. Immutable.
 *
 * <p>What it is launched with: the arguments, and behind them the number of work items as a 64-bit
 * integer, which a kernel takes by having one parameter more than there are arguments. The driver
 * reads as many values as the kernel has parameters, so this needs no knowledge of them. Where it
 * keeps a record of them (CUDA 12.4 and newer), or the image can be read, number and sizes are
 * checked at each launch.
 */
final class CudaKernel extends CudaObject {
  private static final int[] UNKNOWN = {};

  /** Blocks along x; the driver takes no more. */
  private static final long BLOCKS_MAX = Integer.MAX_VALUE;

  final CudaModule module;
  private final String name;
  private final long raw;

  /** Bytes of each parameter; {@link #UNKNOWN} itself if the driver does not say. */
  private final int[] sizes;

  private final LaunchExtras extras;

  private CudaKernel(CudaModule module, String name, long raw, int[] sizes) {
    this.module = module;
    this.name = name;
    this.raw = raw;
    this.sizes = sizes;
    this.extras = new LaunchExtras(module.context(), name, raw);
  }

  static CudaKernel of(CudaModule module, String name, long raw) {
    return new CudaKernel(module, name, raw, sizes(module.context().api, raw, module.sizes(name)));
  }

  /**
   * Asks for one parameter after the other: as many as the image has; or, if that could not be
   * read, until the driver says that there is none, which tools that look for errors report as one.
   *
   * @param told what the image says, all there is where a driver cannot be asked
   */
  private static int[] sizes(CudaApi api, long function, int @Nullable [] told) {
    if (!api.hasParameterInfo()) {
      return told == null ? UNKNOWN : told;
    }
    int count = told == null ? Integer.MAX_VALUE : told.length;
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment offset = arena.allocate(ValueLayout.JAVA_LONG);
      MemorySegment size = arena.allocate(ValueLayout.JAVA_LONG);
      IntStream.Builder found = IntStream.builder();
      for (int i = 0; i < count; i++) {
        int status = api.funcGetParamInfo(function, i, offset.address(), size.address());
        if (status == DriverException.INVALID_VALUE && told == null) {
          break;
        }
        if (status != Status.SUCCESS) {
          return UNKNOWN;
        }
        found.add((int) size.get(ValueLayout.JAVA_LONG, 0));
      }
      return found.build().toArray();
    }
  }

  String name() {
    return name;
  }

  // --- launch -----------------------------------------------------------------------------------

  /** The caller has entered the stream and the module. */
  void launch(CudaStream stream, Grid grid, KernelArguments arguments) {
    checkArguments(arguments);
    int blocks = blocks(grid);
    if (blocks == 0) {
      return; // a launch of nothing, which the driver would refuse
    }
    if (grid.isCooperative() || grid.cluster() > 1 || grid.sharedBytes() > 0) {
      extras.check(grid);
    }
    if (arguments.count() < Scratch.PARAMETERS_MAX) {
      Scratch scratch = Scratch.take();
      try {
        write(scratch.value(0), grid, arguments);
        launch(stream, grid, blocks, scratch.pointers());
      } finally {
        scratch.giveBack();
      }
    } else {
      launchMany(stream, grid, blocks, arguments);
    }
  }

  /** Blocks along x. */
  private int blocks(Grid grid) {
    long blocks = grid.blocks();
    if (blocks > BLOCKS_MAX) {
      throw Status.invalidValue(
          this
              + ": "
              + grid.items()
              + " items are "
              + blocks
              + " blocks of "
              + grid.block()
              + ", and a launch has at most "
              + BLOCKS_MAX
              + "; take larger blocks, or several launches");
    }
    return (int) blocks;
  }

  /**
   * As cuGraphAddKernelNode takes it, arguments included; null for a launch of nothing, which the
   * driver would refuse. The caller has entered the module.
   */
  @Nullable MemorySegment node(Arena arena, Grid grid, KernelArguments arguments) {
    checkArguments(arguments);
    int blocks = blocks(grid);
    if (blocks == 0) {
      return null;
    }
    if (grid.isCooperative() || grid.cluster() > 1) {
      throw Status.refused(
          DriverException.NOT_SUPPORTED,
          this + ": a node has no clusters and is not cooperative; capture the launch instead");
    }
    if (grid.sharedBytes() > 0) {
      extras.check(grid);
    }
    int count = arguments.count() + 1;
    long values = arena.allocate(ValueLayout.JAVA_LONG, count).address();
    long pointers = arena.allocate(ValueLayout.JAVA_LONG, count).address();
    Scratch.writePointers(pointers, values, count);
    write(values, grid, arguments);
    return NodeLayouts.kernel(arena, raw, blocks, grid, pointers);
  }

  private void launchMany(CudaStream stream, Grid grid, int blocks, KernelArguments arguments) {
    int count = arguments.count() + 1;
    try (Arena arena = Arena.ofConfined()) {
      long values = arena.allocate(ValueLayout.JAVA_LONG, count).address();
      long pointers = arena.allocate(ValueLayout.JAVA_LONG, count).address();
      Scratch.writePointers(pointers, values, count);
      write(values, grid, arguments);
      launch(stream, grid, blocks, pointers);
    }
  }

  /** Each value in 8 bytes of its own, the driver takes as many of them as the parameter has. */
  private static void write(long values, Grid grid, KernelArguments arguments) {
    long next = values;
    int count = arguments.count();
    for (int i = 0; i < count; i++) {
      Memory.setLong(next, arguments.bits(i));
      next += Long.BYTES;
    }
    Memory.setLong(next, grid.items());
  }

  private void launch(CudaStream stream, Grid grid, int blocks, long pointers) {
    CudaContext context = stream.context();
    if (grid.isCooperative() || grid.cluster() > 1) {
      extras.launch(stream, grid, blocks, pointers);
      return;
    }
    int shared = grid.sharedBytes();
    int status =
        context.api.launchKernel(
            raw, blocks, 1, 1, grid.block(), 1, 1, shared, stream.raw, pointers, 0);
    if (status != Status.SUCCESS) {
      throw context.failed(status, "cuLaunchKernel(" + name + ")");
    }
  }

  /** The caller has entered the module. */
  long residentBlocks(Grid grid) {
    return extras.residentBlocks(grid);
  }

  // --- checks -----------------------------------------------------------------------------------

  @SuppressWarnings("ReferenceEquality") // an empty array may also be a kernel without parameters
  private void checkArguments(KernelArguments arguments) {
    if (sizes == UNKNOWN) {
      return;
    }
    int count = arguments.count();
    boolean counted = sizes.length == count + 1 && sizes[count] == Long.BYTES;
    if (!counted && sizes.length != count) {
      throw wrongCount(count);
    }
    for (int i = 0; i < count; i++) {
      long bytes = arguments.isBuffer(i) ? Long.BYTES : arguments.bytes(i);
      if (bytes != sizes[i]) {
        throw wrongSize(i, bytes, sizes[i], arguments.isBuffer(i));
      }
    }
  }

  private DriverException wrongCount(int count) {
    return Status.invalidValue(
        this
            + " was launched with "
            + count
            + " arguments; it takes one for each of its parameters, or for each but a last one of 8"
            + " bytes, which is given the number of items");
  }

  private DriverException wrongSize(int index, long came, int expected, boolean buffer) {
    return Status.invalidValue(
        this
            + ": argument "
            + (index + 1)
            + (buffer ? " is a buffer, whose address has " : " has ")
            + came
            + " bytes, and the kernel's parameter has "
            + expected);
  }

  /** {@code kernel axpy(8, 8, 8, 8 bytes)}. */
  @Override
  public String toString() {
    return "kernel "
        + name
        + Arrays.stream(sizes)
            .mapToObj(Integer::toString)
            .collect(Collectors.joining(", ", "(", sizes.length == 0 ? ")" : " bytes)"));
  }

  @Override
  Kind kind() {
    return Kind.KERNEL;
  }

  @Override
  CudaContext context() {
    return module.context();
  }

  /** Goes with its module. */
  @Override
  void dispose() {}
}
