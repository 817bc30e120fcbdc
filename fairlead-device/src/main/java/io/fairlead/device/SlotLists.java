package io.fairlead.device;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * The blocks of a {@link HostBlocks} that nobody has: those that are free, and those that are as
 * soon as their marks are reached, by powers of two. Guarded by the pool's lock; takes no other.
 */
final class SlotLists {
  static final int CLASSES = 64;

  private final List<Chain> free = new ArrayList<>(CLASSES);
  private final List<ArrayDeque<HostBlocks.Slot>> pending = new ArrayList<>(CLASSES);

  /** Of wholes that both halves of are free, by the size of these. */
  private final List<Chain> wholes = new ArrayList<>(CLASSES);

  private long pendingBytes;

  SlotLists() {
    for (int i = 0; i < CLASSES; i++) {
      free.add(new Chain());
      wholes.add(new Chain());
      pending.add(new ArrayDeque<>());
    }
  }

  /** It is lent again at once. */
  void addFree(HostBlocks.Slot slot) {
    slot.after = null;
    slot.piece.idle(slot);
    list(slot);
  }

  /** It is lent again once its mark is reached. */
  void addPending(HostBlocks.Slot slot) {
    pending.get(slot.piece.sizeClass).add(slot);
    pendingBytes += slot.piece.memory.byteSize();
  }

  private void list(HostBlocks.Slot slot) {
    int sizeClass = slot.piece.sizeClass;
    free.get(sizeClass).addLast(slot);
    PinnedPiece whole = slot.piece.setFree(true);
    if (whole != null) {
      wholes.get(sizeClass).addLast(whole.slot());
    }
  }

  private void unlist(HostBlocks.Slot slot) {
    int sizeClass = slot.piece.sizeClass;
    free.get(sizeClass).remove(slot);
    PinnedPiece whole = slot.piece.setFree(false);
    if (whole != null) {
      wholes.get(sizeClass).remove(whole.slot());
    }
  }

  /** A block of that size, LENT; null if there is none, nor what it could be made of. */
  HostBlocks.@Nullable Slot find(int sizeClass) {
    HostBlocks.Slot slot = halved(sizeClass);
    if (slot == null && pendingBytes >= 1L << sizeClass && freeReached()) {
      slot = halved(sizeClass);
    }
    if (slot == null && putTogether(sizeClass)) {
      slot = halved(sizeClass);
    }
    return slot;
  }

  /** The smallest that will do, halved as often as need be. */
  private HostBlocks.@Nullable Slot halved(int sizeClass) {
    for (int each = sizeClass; each < CLASSES; each++) {
      HostBlocks.Slot slot = reuse(each);
      if (slot != null) {
        return lend(slot, sizeClass);
      }
    }
    return null;
  }

  /** One that is in no list becomes one of that size, LENT; what is left of it is free. */
  HostBlocks.Slot lend(HostBlocks.Slot slot, int sizeClass) {
    slot.piece.idle(slot);
    HostBlocks.Slot lent = slot;
    while (lent.piece.sizeClass > sizeClass) {
      lent = lent.piece.halve(this::list);
    }
    lent.piece.lend();
    return lent;
  }

  private HostBlocks.@Nullable Slot reuse(int sizeClass) {
    HostBlocks.Slot slot = free.get(sizeClass).last(); // the one used last is warmest
    if (slot != null) {
      unlist(slot);
      return slot;
    }
    HostBlocks.Slot oldest = pending.get(sizeClass).peek();
    if (oldest == null || !oldest.isReached()) {
      return null;
    }
    pending.get(sizeClass).poll();
    pendingBytes -= oldest.piece.memory.byteSize();
    oldest.after = null;
    return oldest;
  }

  /**
   * Looks behind the oldest too: streams are not equally fast, and one that is held up must not
   * keep the blocks of the others. Only before more would be pinned, or somebody would wait, since
   * it looks at all.
   */
  boolean freeReached() {
    boolean found = false;
    for (ArrayDeque<HostBlocks.Slot> each : pending) {
      for (Iterator<HostBlocks.Slot> slots = each.iterator(); slots.hasNext(); ) {
        HostBlocks.Slot slot = slots.next();
        if (slot.isReached()) {
          slots.remove();
          pendingBytes -= slot.piece.memory.byteSize();
          addFree(slot);
          found = true;
        }
      }
    }
    return found;
  }

  long pendingBytes() {
    return pendingBytes;
  }

  /** Whether free halves have become a whole of that size; smaller ones come first. */
  private boolean putTogether(int sizeClass) {
    boolean found = false;
    for (int each = 0; each < sizeClass; each++) {
      for (HostBlocks.Slot whole = wholes.get(each).last();
          whole != null;
          whole = wholes.get(each).last()) {
        unlist(whole.piece.leftSlot());
        unlist(whole.piece.rightSlot());
        list(whole);
        found |= each + 1 == sizeClass;
      }
    }
    return found;
  }

  /** So that a region of which nothing is in use is free as a whole. */
  void putTogether() {
    putTogether(CLASSES - 1);
  }

  /** Takes out a region that is free as a whole: no slot is reached from it any more. */
  void takeOut(PinnedPiece region) {
    unlist(region.slot());
    region.eachPiece(PinnedPiece::lend); // to nobody
  }

  /**
   * Adds what is reached first on each stream that uses a block: one of them comes first of all.
   */
  void addOldestPending(Map<DeviceStream, Mark> oldest) {
    for (ArrayDeque<HostBlocks.Slot> each : pending) {
      for (HostBlocks.Slot slot : each) {
        Mark mark = slot.after;
        if (mark != null) {
          oldest.merge(mark.stream(), mark, SlotLists::earlier);
        }
      }
    }
  }

  private static Mark earlier(Mark one, Mark other) {
    return one.sequence() <= other.sequence() ? one : other;
  }

  /** The pool is closed: no slot is reached from here. */
  void clear() {
    free.replaceAll(_ -> new Chain());
    pending.forEach(ArrayDeque::clear);
    wholes.replaceAll(_ -> new Chain());
    pendingBytes = 0;
  }

  /** Slots in the order they came, each of which can leave at once. */
  private static final class Chain {
    private HostBlocks.@Nullable Slot last;

    HostBlocks.@Nullable Slot last() {
      return last;
    }

    void addLast(HostBlocks.Slot slot) {
      slot.before = last;
      slot.behind = null;
      if (last != null) {
        last.behind = slot;
      }
      last = slot;
    }

    void remove(HostBlocks.Slot slot) {
      if (slot.before != null) {
        slot.before.behind = slot.behind;
      }
      if (slot.behind != null) {
        slot.behind.before = slot.before;
      } else {
        last = slot.before;
      }
      slot.before = null;
      slot.behind = null;
    }
  }
}
