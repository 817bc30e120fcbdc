package io.fairlead.device;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
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

  /** By the size of the halves: wholes that both halves of are free. The last one of each. */
  private final @Nullable PinnedPiece[] wholes = new PinnedPiece[CLASSES];

  private long pendingBytes;

  SlotLists() {
    for (int i = 0; i < CLASSES; i++) {
      free.add(new Chain());
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
    free.get(slot.piece.sizeClass).addLast(slot);
    PinnedPiece whole = slot.piece.setFree(true);
    if (whole != null) {
      addWhole(whole);
    }
  }

  private void unlist(HostBlocks.Slot slot) {
    free.get(slot.piece.sizeClass).remove(slot);
    PinnedPiece whole = slot.piece.setFree(false);
    if (whole != null) {
      removeWhole(whole);
    }
  }

  private void addWhole(PinnedPiece whole) {
    PinnedPiece last = wholes[whole.sizeClass - 1];
    whole.before = last;
    if (last != null) {
      last.behind = whole;
    }
    wholes[whole.sizeClass - 1] = whole;
  }

  private void removeWhole(PinnedPiece whole) {
    if (whole.before != null) {
      whole.before.behind = whole.behind;
    }
    if (whole.behind != null) {
      whole.behind.before = whole.before;
    } else {
      wholes[whole.sizeClass - 1] = whole.before;
    }
    whole.before = null;
    whole.behind = null;
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

  /** Whether free halves have become a whole of that size; smaller ones come first. */
  private boolean putTogether(int sizeClass) {
    boolean found = false;
    for (int each = 0; each < sizeClass; each++) {
      for (PinnedPiece whole = wholes[each]; whole != null; whole = wholes[each]) {
        unlist(whole.leftSlot());
        unlist(whole.rightSlot());
        list(whole.slot());
        found |= each + 1 == sizeClass;
      }
    }
    return found;
  }

  /** Takes out all regions of which nothing is in use, until they come to so many bytes. */
  List<PinnedPiece> takeRegions(long bytes) {
    putTogether(CLASSES - 1);
    List<PinnedPiece> taken = new ArrayList<>(0);
    long left = bytes;
    for (int each = CLASSES - 1; each >= 0 && left > 0; each--) {
      for (HostBlocks.Slot slot : free.get(each).all()) {
        if (left > 0 && slot.piece.whole == null) {
          unlist(slot);
          slot.piece.eachPiece(PinnedPiece::lend); // to nobody: no slot is reached from there
          taken.add(slot.piece);
          left -= slot.piece.memory.byteSize();
        }
      }
    }
    return taken;
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
    Arrays.fill(wholes, null);
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

    /** As they are now. */
    List<HostBlocks.Slot> all() {
      List<HostBlocks.Slot> all = new ArrayList<>(0);
      for (HostBlocks.Slot each = last; each != null; each = each.before) {
        all.add(each);
      }
      return all;
    }
  }
}
