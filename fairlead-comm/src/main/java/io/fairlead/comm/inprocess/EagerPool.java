package io.fairlead.comm.inprocess;

import io.fairlead.task.BriefLock;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/**
 * The bounded memory in which one rank keeps messages that nobody has received yet.
 *
 * <p>Blocks have sizes of powers of two, at least {@link #SMALLEST}, and are used again. Used and
 * free blocks together never exceed {@code bytesMax}; when a size is missing, free blocks of other
 * sizes are dropped for it.
 *
 * <p>All state is guarded by {@code lock}, the innermost lock of this package: nothing is called
 * while it is held.
 */
final class EagerPool {
  private static final int SMALLEST_BITS = 6;
  private static final int SMALLEST = 1 << SMALLEST_BITS;
  private static final int CLASSES = 31 - SMALLEST_BITS;

  /** The largest block; a longer message always waits for its receiver. */
  private static final long LARGEST = (long) SMALLEST << (CLASSES - 1);

  private final long bytesMax;
  private final int blocksMax;
  private final BriefLock lock = new BriefLock();
  private final @Nullable Block[] free = new @Nullable Block[CLASSES];
  private long bytesUsed;
  private long bytesFree;
  private int blocksUsed;

  EagerPool(long bytesMax, int blocksMax) {
    this.bytesMax = bytesMax;
    this.blocksMax = blocksMax;
  }

  /** A block for so many bytes, or null if the bound leaves no room. */
  @Nullable Block take(long bytes) {
    if (bytes > LARGEST) {
      return null;
    }
    int sizeClass = sizeClass(bytes);
    long size = (long) SMALLEST << sizeClass;
    lock.lock();
    try {
      if (blocksUsed >= blocksMax || bytesUsed + size > bytesMax) {
        return null;
      }
      blocksUsed++;
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
    } finally {
      lock.unlock();
    }
    return new Block(sizeClass, MemorySegment.ofArray(new byte[(int) size]));
  }

  void give(Block block) {
    long size = block.memory.byteSize();
    lock.lock();
    try {
      blocksUsed--;
      bytesUsed -= size;
      bytesFree += size;
      block.next = free[block.sizeClass];
      free[block.sizeClass] = block;
    } finally {
      lock.unlock();
    }
  }

  long bytesUsed() {
    lock.lock();
    try {
      return bytesUsed;
    } finally {
      lock.unlock();
    }
  }

  private void dropFree() {
    for (int i = 0; i < CLASSES; i++) {
      free[i] = null;
    }
    bytesFree = 0;
  }

  private static int sizeClass(long bytes) {
    return bytes <= SMALLEST ? 0 : 64 - SMALLEST_BITS - Long.numberOfLeadingZeros(bytes - 1);
  }

  /** Memory for one message. Belongs to whoever took it. */
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
