package io.fairlead.device;

import java.lang.foreign.MemorySegment;
import java.util.concurrent.atomic.AtomicReference;
import org.jspecify.annotations.Nullable;

/**
 * A piece of page-locked host memory, lent by {@link HostBlocks}. Belongs to whoever took it, from
 * any thread, until it is closed; the memory must not be touched afterwards.
 */
public final class HostBlock implements AutoCloseable {
  private final MemorySegment segment;
  private final AtomicReference<HostBlocks.@Nullable Slot> slot;

  HostBlock(HostBlocks.Slot slot, long bytes) {
    this.slot = new AtomicReference<>(slot);
    this.segment = slot.memory().asSlice(0, bytes);
  }

  public long bytes() {
    return segment.byteSize();
  }

  /**
   * The memory, exactly as large as was asked for. Its contents are what the last user left.
   *
   * @throws IllegalStateException if the block was closed
   */
  public MemorySegment segment() {
    if (slot.get() == null) {
      throw new IllegalStateException(
          "the host block was closed; close it with closeAfter(mark) if the device still uses it");
    }
    return segment;
  }

  /** Gives the block back now: nothing on a device may still use it. Idempotent; never waits. */
  @Override
  public void close() {
    HostBlocks.Slot mine = slot.getAndSet(null);
    if (mine != null) {
      mine.giveBack(null);
    }
  }

  /**
   * Gives the block back; it is lent again only after the mark is reached. Idempotent with {@link
   * #close}; never waits.
   */
  public void closeAfter(Mark mark) {
    HostBlocks.Slot mine = slot.getAndSet(null);
    if (mine != null) {
      mine.giveBack(mark);
    }
  }
}
