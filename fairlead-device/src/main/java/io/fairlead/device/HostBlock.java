package io.fairlead.device;

import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.atomic.AtomicReference;
import org.jspecify.annotations.Nullable;

/**
 * A piece of page-locked host memory, lent by {@link HostBlocks}. Belongs to whoever took it, from
 * any thread, until it is closed; the memory must not be touched afterwards.
 */
public final class HostBlock implements AutoCloseable {
  private final MemorySegment segment;
  private final AtomicReference<HostBlocks.@Nullable Slot> slot;

  /**
   * The last use of each stream that was told here; a list that is never changed. Swapped without a
   * lock: an owner's commands and its affine tasks may tell of uses at once.
   */
  private final AtomicReference<List<Mark>> uses = new AtomicReference<>(List.of());

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

  /**
   * The device uses the block up to the mark: whenever it is closed, also before, it is lent again
   * only after that. Copies of buffers from and to a block say so themselves. Any thread; never
   * waits.
   */
  public void usedUntil(Mark mark) {
    List<Mark> before = uses.get();
    List<Mark> after = with(before, mark);
    while (!uses.compareAndSet(before, after)) {
      before = uses.get();
      after = with(before, mark);
    }
  }

  private static List<Mark> with(List<Mark> before, Mark mark) {
    if (before.isEmpty() || (before.size() == 1 && isCovered(before.getFirst(), mark))) {
      return List.of(mark);
    }
    List<Mark> all = new ArrayList<>(before.size() + 1);
    for (Mark use : before) {
      if (!isCovered(use, mark)) {
        all.add(use);
      }
    }
    all.add(mark);
    return Collections.unmodifiableList(all);
  }

  private static boolean isCovered(Mark use, Mark mark) {
    return use.stream() == mark.stream() && use.sequence() <= mark.sequence();
  }

  /**
   * Whether the device is known to have ended all uses that {@link #usedUntil} was told of: whoever
   * has the block may let it be written anew, as if it had just been taken. Any thread; never
   * waits.
   */
  public boolean isUnused() {
    HostBlocks.Slot mine = slot.get();
    List<Mark> told = uses.get();
    if (mine == null || !mine.isUnused(told)) {
      return false;
    }
    return told.isEmpty() || uses.compareAndSet(told, List.of()); // nobody need look at them again
  }

  /**
   * Gives the block back now, or once the uses that {@link #usedUntil} was told of have ended:
   * nothing else on a device may still use it. Idempotent; never waits.
   */
  @Override
  public void close() {
    HostBlocks.Slot mine = slot.getAndSet(null);
    if (mine != null) {
      mine.giveBack(uses.get());
    }
  }

  /**
   * As {@link #close}, and lent again only after this mark is reached as well. Idempotent with
   * {@link #close}; never waits.
   */
  public void closeAfter(Mark mark) {
    usedUntil(mark);
    close();
  }
}
