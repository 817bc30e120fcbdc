package io.fairlead.ffi.cuda;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import io.fairlead.device.spi.Grid;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/**
 * The structures that graph nodes are made of, as {@code cuda.h} lays them out for 64 bits. What is
 * not said is 0.
 */
final class NodeLayouts {
  static final int HOST = 1;
  static final int DEVICE = 2;

  /** CUDA_KERNEL_NODE_PARAMS: function, grid and block, shared bytes, arguments. */
  private static final int KERNEL_BYTES = 72;

  private static final int KERNEL_GRID = 8;
  private static final int KERNEL_BLOCK = 20;
  private static final int KERNEL_SHARED = 32;
  private static final int KERNEL_ARGUMENTS = 40;

  /** CUDA_MEMCPY3D: two sides of the same layout, then width, height and depth. */
  private static final int COPY_BYTES = 200;

  private static final int COPY_SOURCE = 0;
  private static final int COPY_TARGET = 88;
  private static final int SIDE_TYPE = 32;
  private static final int SIDE_HOST = 40;
  private static final int SIDE_DEVICE = 48;
  private static final int COPY_EXTENT = 176;

  /** CUDA_MEMSET_NODE_PARAMS. */
  private static final int FILL_BYTES = 40;

  private static final int FILL_VALUE = 16;
  private static final int FILL_ELEMENT = 20;
  private static final int FILL_WIDTH = 24;
  private static final int FILL_HEIGHT = 32;

  private NodeLayouts() {}

  static MemorySegment kernel(Arena arena, long function, int blocks, Grid grid, long arguments) {
    MemorySegment node = arena.allocate(KERNEL_BYTES, Long.BYTES);
    node.set(JAVA_LONG, 0, function);
    three(node, KERNEL_GRID, blocks);
    three(node, KERNEL_BLOCK, grid.block());
    node.set(JAVA_INT, KERNEL_SHARED, grid.sharedBytes());
    node.set(JAVA_LONG, KERNEL_ARGUMENTS, arguments);
    return node;
  }

  private static void three(MemorySegment node, int offset, int x) {
    node.set(JAVA_INT, offset, x);
    node.set(JAVA_INT, offset + Integer.BYTES, 1);
    node.set(JAVA_INT, offset + 2 * Integer.BYTES, 1);
  }

  /** Kinds: {@link #HOST} or {@link #DEVICE}. */
  static MemorySegment copy(
      Arena arena, int targetKind, long target, int sourceKind, long source, long bytes) {
    MemorySegment node = arena.allocate(COPY_BYTES, Long.BYTES);
    side(node, COPY_SOURCE, sourceKind, source);
    side(node, COPY_TARGET, targetKind, target);
    node.set(JAVA_LONG, COPY_EXTENT, bytes);
    node.set(JAVA_LONG, COPY_EXTENT + Long.BYTES, 1);
    node.set(JAVA_LONG, COPY_EXTENT + 2 * Long.BYTES, 1);
    return node;
  }

  private static void side(MemorySegment node, int offset, int kind, long address) {
    node.set(JAVA_INT, offset + SIDE_TYPE, kind);
    node.set(JAVA_LONG, offset + (kind == HOST ? SIDE_HOST : SIDE_DEVICE), address);
  }

  static MemorySegment fill(Arena arena, long target, long bytes, byte value) {
    MemorySegment node = arena.allocate(FILL_BYTES, Long.BYTES);
    node.set(JAVA_LONG, 0, target);
    node.set(JAVA_INT, FILL_VALUE, Byte.toUnsignedInt(value));
    node.set(JAVA_INT, FILL_ELEMENT, 1);
    node.set(JAVA_LONG, FILL_WIDTH, bytes);
    node.set(JAVA_LONG, FILL_HEIGHT, 1);
    return node;
  }
}
