package io.fairlead.comm.wire;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/**
 * Native memory of the transport's own, in blocks of powers of two that are used again. What is
 * used is bounded by the caller's credits ({@link #take}) or here ({@link #tryTake}); used and free
 * together stay below the bound, as long as what is used does.
 *
 * <p>No locks: one thread at a time, as in all of this package.
 */
final class Blocks {
  private static final int SMALLEST_BITS = 6;
  private static final int SMALLEST = 1 << SMALLEST_BITS;
  private static final int CLASSES = 31 - SMALLEST_BITS;

  /** The longest block. */
  static final long LARGEST = (long) SMALLEST << (CLASSES - 1);

  private final long bytesMax;
  private final @Nullable Block[] free = new @Nullable Block[CLASSES];
  private long bytesUsed;
  private long bytesFree;

  Blocks(long bytesMax) {
    this.bytesMax = bytesMax;
  }

  /** A block for so many bytes, at most {@link #LARGEST}; null if the bound leaves no room. */
  @Nullable Block tryTake(long bytes) {
    if (bytes > LARGEST || bytesUsed + size(sizeClass(bytes)) > bytesMax) {
      return null;
    }
    return take(bytes);
  }

  /** A block for so many bytes, whatever the bound. */
  Block take(long bytes) {
    int sizeClass = sizeClass(bytes);
    long size = size(sizeClass);
    bytesUsed += size;
    Block block = free[sizeClass];
    if (block != null) {
      free[sizeClass] = block.next;
      block.next = null;
      bytesFree -= size;
      return block;
    }
    if (bytesUsed + bytesFree > bytesMax) {
      dropFree();
    }
    return new Block(sizeClass, Arena.ofAuto().allocate(size, SMALLEST));
  }

  void give(Block block) {
    long size = size(block.sizeClass);
    bytesUsed -= size;
    if (bytesUsed + bytesFree + size <= bytesMax) {
      block.next = free[block.sizeClass];
      free[block.sizeClass] = block;
      bytesFree += size;
    }
  }

  long bytesUsed() {
    return bytesUsed;
  }

  private void dropFree() {
    for (int i = 0; i < CLASSES; i++) {
      free[i] = null;
    }
    bytesFree = 0;
  }

  private static long size(int sizeClass) {
    return (long) SMALLEST << sizeClass;
  }

  private static int sizeClass(long bytes) {
    return bytes <= SMALLEST ? 0 : 64 - SMALLEST_BITS - Long.numberOfLeadingZeros(bytes - 1);
  }

  /** Belongs to whoever took it. */
  static final class Block {
    final MemorySegment memory;
    private final int sizeClass;
    private @Nullable Block next;

    private Block(int sizeClass, MemorySegment memory) {
      this.sizeClass = sizeClass;
      this.memory = memory;
    }
  }
}
