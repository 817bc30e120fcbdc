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

/**
 * A kernel of a module. Immutable.
 *
 * <p>What it is launched with: the number of work items as a 64-bit integer, then the arguments; or
 * only the arguments, if it has exactly as many parameters as there are. Which of the two is told
 * by the driver's own record of the kernel's parameters, against which all sizes are checked at
 * each launch. A driver that keeps none (before CUDA 12.4) is given the first form, unchecked.
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

  private CudaKernel(CudaModule module, String name, long raw, int[] sizes) {
    this.module = module;
    this.name = name;
    this.raw = raw;
    this.sizes = sizes;
  }

  static CudaKernel of(CudaModule module, String name, long raw) {
    return new CudaKernel(module, name, raw, sizes(module.context().api, raw));
  }

  /** Asks for one parameter after the other until the driver says that there is none. */
  private static int[] sizes(CudaApi api, long function) {
    if (!api.hasParameterInfo()) {
      return UNKNOWN;
    }
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment offset = arena.allocate(ValueLayout.JAVA_LONG);
      MemorySegment size = arena.allocate(ValueLayout.JAVA_LONG);
      IntStream.Builder found = IntStream.builder();
      for (int i = 0; ; i++) {
        int status = api.funcGetParamInfo(function, i, offset.address(), size.address());
        if (status == DriverException.INVALID_VALUE) {
          return found.build().toArray();
        }
        if (status != Status.SUCCESS) {
          return UNKNOWN;
        }
        found.add((int) size.get(ValueLayout.JAVA_LONG, 0));
      }
    }
  }

  String name() {
    return name;
  }

  // --- launch -----------------------------------------------------------------------------------

  /** The caller has entered the stream and the module. */
  void launch(CudaStream stream, Grid grid, KernelArguments arguments) {
    boolean counted = checkArguments(arguments);
    long blocks = Math.ceilDiv(grid.items(), (long) grid.block());
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
    if (blocks == 0) {
      return; // a launch of nothing, which the driver would refuse
    }
    int count = arguments.count() + (counted ? 1 : 0);
    if (count <= Scratch.PARAMETERS_MAX) {
      Scratch scratch = Scratch.take();
      try {
        write(scratch.value(0), counted, grid, arguments);
        launch(stream, grid, (int) blocks, scratch.pointers());
      } finally {
        scratch.giveBack();
      }
    } else {
      launchMany(stream, grid, (int) blocks, counted, arguments);
    }
  }

  private void launchMany(
      CudaStream stream, Grid grid, int blocks, boolean counted, KernelArguments arguments) {
    int count = arguments.count() + 1;
    try (Arena arena = Arena.ofConfined()) {
      long values = arena.allocate(ValueLayout.JAVA_LONG, count).address();
      long pointers = arena.allocate(ValueLayout.JAVA_LONG, count).address();
      Scratch.writePointers(pointers, values, count);
      write(values, counted, grid, arguments);
      launch(stream, grid, blocks, pointers);
    }
  }

  /** Each value in 8 bytes of its own, the driver takes as many of them as the parameter has. */
  private static void write(long values, boolean counted, Grid grid, KernelArguments arguments) {
    long next = values;
    if (counted) {
      Memory.setLong(next, grid.items());
      next += Long.BYTES;
    }
    int count = arguments.count();
    for (int i = 0; i < count; i++) {
      Memory.setLong(next, arguments.bits(i));
      next += Long.BYTES;
    }
  }

  private void launch(CudaStream stream, Grid grid, int blocks, long pointers) {
    CudaContext context = stream.context();
    int status =
        context.api.launchKernel(raw, blocks, 1, 1, grid.block(), 1, 1, 0, stream.raw, pointers, 0);
    if (status != Status.SUCCESS) {
      throw context.failed(status, "cuLaunchKernel(" + name + ")");
    }
  }

  // --- checks -----------------------------------------------------------------------------------

  /** Whether the number of items goes first. */
  @SuppressWarnings("ReferenceEquality") // an empty array may also be a kernel without parameters
  private boolean checkArguments(KernelArguments arguments) {
    if (sizes == UNKNOWN) {
      return true;
    }
    int count = arguments.count();
    boolean counted = sizes.length == count + 1 && sizes[0] == Long.BYTES;
    if (!counted && sizes.length != count) {
      throw wrongCount(count);
    }
    int first = counted ? 1 : 0;
    for (int i = 0; i < count; i++) {
      long bytes = arguments.isBuffer(i) ? Long.BYTES : arguments.bytes(i);
      if (bytes != sizes[first + i]) {
        throw wrongSize(i, bytes, sizes[first + i], arguments.isBuffer(i));
      }
    }
    return counted;
  }

  private DriverException wrongCount(int count) {
    return Status.invalidValue(
        this
            + " was launched with "
            + count
            + " arguments; it takes either exactly its parameters, or a 64-bit number of items"
            + " first and an argument for each of the others");
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
