package io.fairlead.comm.wire;

import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** The operations of one class that are held back from one peer, oldest first. */
final class HeldOps {
  @Nullable Op first;
  private @Nullable Op last;

  boolean isEmpty() {
    return first == null;
  }

  void add(Op op) {
    op.previous = last;
    if (last == null) {
      first = op;
    } else {
      last.next = op;
    }
    last = op;
  }

  /** Back in front of all others. */
  void addFirst(Op op) {
    op.next = first;
    if (first == null) {
      last = op;
    } else {
      first.previous = op;
    }
    first = op;
  }

  /** Those of a channel, as it is now: they may be removed meanwhile. */
  List<Op> of(int channel) {
    List<Op> found = new ArrayList<>();
    for (Op op = first; op != null; op = op.next) {
      if (op.channel == channel) {
        found.add(op);
      }
    }
    return found;
  }

  void remove(Op op) {
    if (op.previous == null) {
      first = op.next;
    } else {
      op.previous.next = op.next;
    }
    if (op.next == null) {
      last = op.previous;
    } else {
      op.next.previous = op.previous;
    }
    op.previous = null;
    op.next = null;
  }
}
