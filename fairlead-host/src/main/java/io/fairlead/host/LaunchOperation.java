package io.fairlead.host;

import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.Grid;
import io.fairlead.device.spi.JavaKernel;
import io.fairlead.device.spi.KernelArguments;
import io.fairlead.host.pool.Block;
import io.fairlead.host.pool.DevicePool;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/** A launch, and the copy of its arguments that its kernel sees. */
final class LaunchOperation extends RangeOperation implements KernelArguments {
  private static final long[] NO_VALUES = {};
  private static final @Nullable MemorySegment[] NO_MEMORY = {};
  private static final @Nullable Block[] NO_BLOCKS = {};

  private final String name;
  private final JavaKernel code;
  private final Grid grid;

  /** Bits and bytes of each argument in turn. */
  private long[] values;

  /** The memory of each buffer argument, null for scalars. */
  private @Nullable MemorySegment[] memory;

  private @Nullable Block[] blocks;

  private LaunchOperation(
      HostKernel kernel,
      Grid grid,
      long[] values,
      @Nullable MemorySegment[] memory,
      @Nullable Block[] blocks,
      @Nullable String misuse) {
    super(misuse);
    this.name = kernel.name;
    this.code = kernel.code;
    this.grid = grid;
    this.values = values;
    this.memory = memory;
    this.blocks = blocks;
  }

  /** Copies the arguments and looks the buffers up. */
  static LaunchOperation of(
      DevicePool pool, HostKernel kernel, Grid grid, KernelArguments arguments) {
    int count = arguments.count();
    long[] values = count == 0 ? NO_VALUES : new long[2 * count];
    @Nullable MemorySegment[] memory = count == 0 ? NO_MEMORY : new @Nullable MemorySegment[count];
    @Nullable Block[] blocks = count == 0 ? NO_BLOCKS : new @Nullable Block[count];
    String misuse = null;
    for (int i = 0; i < count; i++) {
      long bits = arguments.bits(i);
      long bytes = arguments.bytes(i);
      values[2 * i] = bits;
      values[2 * i + 1] = bytes;
      if (arguments.isBuffer(i)) {
        Block block = bytes == 0 ? null : pool.find(bits);
        if (block != null && block.holds(bits, bytes)) {
          blocks[i] = block;
          memory[i] = block.slice(bits, bytes);
        } else {
          memory[i] = MemorySegment.NULL;
          misuse = bytes == 0 ? misuse : wrongBuffer(i, bits, bytes, block);
        }
      }
    }
    return new LaunchOperation(kernel, grid, values, memory, blocks, misuse);
  }

  private static String wrongBuffer(int index, long address, long bytes, @Nullable Block block) {
    String what = "argument " + index + ", " + bytes + " bytes at " + Status.hex(address) + ", ";
    return block == null
        ? what + "is no device memory of this context (freed before?)"
        : what + "goes beyond its block of " + block.bytes() + " bytes";
  }

  @Override
  long items() {
    return grid.items();
  }

  @Override
  long grain() {
    return grid.grain();
  }

  @Override
  void piece(long begin, long end) {
    code.run(this, begin, end);
  }

  @Override
  boolean isKernel() {
    return true;
  }

  @Override
  void checkBlocks() {
    for (Block block : blocks) {
      check(block);
    }
  }

  @Override
  void drop() {
    values = NO_VALUES;
    memory = NO_MEMORY;
    blocks = NO_BLOCKS;
  }

  @Override
  DriverCall call() {
    return DriverCall.LAUNCH;
  }

  @Override
  String describe() {
    return "kernel '" + name + "' over " + grid.items() + " items";
  }

  // --- as its kernel sees it --------------------------------------------------------------------

  @Override
  public int count() {
    return memory.length;
  }

  @Override
  public boolean isBuffer(int index) {
    return memory[index] != null;
  }

  @Override
  public long bits(int index) {
    return values[2 * index];
  }

  @Override
  public long bytes(int index) {
    return values[2 * index + 1];
  }

  @Override
  public MemorySegment buffer(int index) {
    MemorySegment segment = memory[index];
    if (segment == null) {
      throw new IllegalArgumentException(
          "argument " + index + " of kernel '" + name + "' is a scalar, not a buffer");
    }
    return segment;
  }
}
