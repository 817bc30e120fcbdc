package io.fairlead.comm;

import io.fairlead.task.Owner;
import java.lang.foreign.MemorySegment;
import java.util.Optional;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BooleanSupplier;
import org.jspecify.annotations.Nullable;

/**
 * The bounded pool behind {@link Comm#lend}. Blocks have sizes of powers of two and are used again.
 *
 * <p>The bound counts what is lent, by block size; free blocks are kept up to the same bound.
 * {@code free} and {@code bytesFree} are guarded by {@code lock}, an innermost lock.
 */
final class Lender {
  private static final int SMALLEST_BITS = 6;
  private static final int CLASSES = 34 - SMALLEST_BITS;

  private final Allowance allowance;
  private final ReentrantLock lock = new ReentrantLock();
  private final @Nullable Block[] free = new @Nullable Block[CLASSES];
  private long bytesFree;

  Lender(long bytesMax) {
    this.allowance = new Allowance(bytesMax);
  }

  /**
   * Lends, waiting for others to give back if need be. Only threads that may wait.
   *
   * @param over whether nothing can be done with it any more; who makes it so calls {@link #look}
   * @return null: it became so
   */
  @Nullable LentBuffer lend(long bytes, BooleanSupplier over) {
    int sizeClass = sizeClass(bytes);
    return allowance.take(size(sizeClass), over)
        ? new LentBuffer(this, block(sizeClass), bytes)
        : null;
  }

  /** For some who wait it may be over. Any thread; never blocks. */
  void look() {
    allowance.look();
  }

  /** Lends if that needs no waiting. */
  Optional<LentBuffer> tryLend(long bytes) {
    int sizeClass = sizeClass(bytes);
    return allowance.tryTake(size(sizeClass))
        ? Optional.of(new LentBuffer(this, block(sizeClass), bytes))
        : Optional.empty();
  }

  /** As tryLend, for the engine's own use; null also if so much is never lent. */
  @Nullable LentBuffer tryStage(long bytes) {
    return bytes > allowance.max() / 2 ? null : tryLend(bytes).orElse(null);
  }

  void give(Block block) {
    long size = size(block.sizeClass);
    Owner.lock(lock);
    try {
      if (bytesFree + size <= allowance.max()) {
        block.next = free[block.sizeClass];
        free[block.sizeClass] = block;
        bytesFree += size;
      }
    } finally {
      lock.unlock();
    }
    allowance.give(size);
  }

  long bytesLent() {
    return allowance.out();
  }

  /** For tests. */
  Allowance allowance() {
    return allowance;
  }

  private Block block(int sizeClass) {
    Owner.lock(lock);
    try {
      Block block = free[sizeClass];
      if (block != null) {
        free[sizeClass] = block.next;
        block.next = null;
        bytesFree -= size(sizeClass);
        return block;
      }
    } finally {
      lock.unlock();
    }
    return new Block(sizeClass);
  }

  private int sizeClass(long bytes) {
    if (bytes < 0) {
      throw new IllegalArgumentException("a buffer has 0 bytes or more, not " + bytes);
    }
    int sizeClass =
        bytes <= 1L << SMALLEST_BITS
            ? 0
            : Long.SIZE - SMALLEST_BITS - Long.numberOfLeadingZeros(bytes - 1);
    if (sizeClass >= CLASSES || size(sizeClass) > allowance.max()) {
      throw new IllegalArgumentException(
          "a buffer of "
              + bytes
              + " bytes can never be lent within "
              + allowance.max()
              + " bytes: raise CommConfig.lentBytes, or send memory of your own");
    }
    return sizeClass;
  }

  private static long size(int sizeClass) {
    return 1L << (SMALLEST_BITS + sizeClass);
  }

  /** Memory of one lent buffer, aligned for longs and doubles. */
  static final class Block {
    final MemorySegment memory;
    private final int sizeClass;
    private @Nullable Block next;

    private Block(int sizeClass) {
      this.sizeClass = sizeClass;
      this.memory = MemorySegment.ofArray(new long[(int) (size(sizeClass) / Long.BYTES)]);
    }
  }
}
