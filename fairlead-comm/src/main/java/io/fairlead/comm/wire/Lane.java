package io.fairlead.comm.wire;

import org.jspecify.annotations.Nullable;

/**
 * Receives that wait, and messages that wait, of one channel, kind, source and tag.
 *
 * <p>There is one for each source, and one for {@link io.fairlead.comm.spi.Transport#ANY}: in that,
 * receives from any source wait, and all messages that wait in the others of its tag, in the order
 * in which they came.
 */
final class Lane {
  int channel;
  int kind;
  int source;
  int tag;

  @Nullable Waiting firstWaiting;
  @Nullable Waiting lastWaiting;
  int waiting;
  @Nullable Kept firstKept;
  @Nullable Kept lastKept;

  /** The source holds more of it back, and sends one for each pull. */
  boolean held;

  /** Pulls that were not answered yet. */
  int pulled;

  /** Among the lanes of its rank; else it is unused. */
  boolean linked;

  /** Next lane of the same bucket, or of the list of unused lanes. */
  @Nullable Lane next;

  boolean isEmpty() {
    return firstWaiting == null && firstKept == null && !held && pulled == 0;
  }

  boolean is(int otherChannel, int otherKind, int otherSource, int otherTag) {
    return tag == otherTag && source == otherSource && channel == otherChannel && kind == otherKind;
  }

  // --- receives ---------------------------------------------------------------------------------

  /** In order; nearly always that is at the end. */
  void add(Waiting added) {
    Waiting before = lastWaiting;
    while (before != null && before.order > added.order) {
      before = before.previous;
    }
    Waiting after = before == null ? firstWaiting : before.next;
    added.lane = this;
    added.previous = before;
    added.next = after;
    if (before == null) {
      firstWaiting = added;
    } else {
      before.next = added;
    }
    if (after == null) {
      lastWaiting = added;
    } else {
      after.previous = added;
    }
    waiting++;
  }

  void remove(Waiting removed) {
    Waiting before = removed.previous;
    Waiting after = removed.next;
    if (before == null) {
      firstWaiting = after;
    } else {
      before.next = after;
    }
    if (after == null) {
      lastWaiting = before;
    } else {
      after.previous = before;
    }
    removed.lane = null;
    removed.previous = null;
    removed.next = null;
    waiting--;
  }

  // --- messages ---------------------------------------------------------------------------------

  /** By age, by the links for lanes of one source; nearly always that is at the end. */
  void addOfSource(Kept added) {
    Kept before = lastKept;
    while (before != null && before.order > added.order) {
      before = before.previous;
    }
    Kept after = before == null ? firstKept : before.next;
    added.lane = this;
    added.previous = before;
    added.next = after;
    if (before == null) {
      firstKept = added;
    } else {
      before.next = added;
    }
    if (after == null) {
      lastKept = added;
    } else {
      after.previous = added;
    }
  }

  void removeOfSource(Kept kept) {
    if (kept.previous == null) {
      firstKept = kept.next;
    } else {
      kept.previous.next = kept.next;
    }
    if (kept.next == null) {
      lastKept = kept.previous;
    } else {
      kept.next.previous = kept.previous;
    }
    kept.lane = null;
    kept.previous = null;
    kept.next = null;
  }

  /** By age, by the links for lanes of any source. */
  void addOfAny(Kept added) {
    Kept before = lastKept;
    while (before != null && before.order > added.order) {
      before = before.older;
    }
    Kept after = before == null ? firstKept : before.newer;
    added.anyLane = this;
    added.older = before;
    added.newer = after;
    if (before == null) {
      firstKept = added;
    } else {
      before.newer = added;
    }
    if (after == null) {
      lastKept = added;
    } else {
      after.older = added;
    }
  }

  void removeOfAny(Kept kept) {
    if (kept.older == null) {
      firstKept = kept.newer;
    } else {
      kept.older.newer = kept.newer;
    }
    if (kept.newer == null) {
      lastKept = kept.older;
    } else {
      kept.newer.older = kept.older;
    }
    kept.anyLane = null;
    kept.older = null;
    kept.newer = null;
  }
}
