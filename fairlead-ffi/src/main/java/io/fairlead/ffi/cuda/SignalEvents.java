package io.fairlead.ffi.cuda;

import org.jspecify.annotations.Nullable;

/**
 * The events of a context that stand for signals, where a stream may not write a ticket. All are
 * made when the context is opened: making one later may wait until no kernel runs. When none is
 * left a ticket is written all the same, which is late for others at worst, never wrong.
 *
 * <p>An event is recorded again only after it was seen that its work has ended. Those of a stream
 * that was destroyed before are set aside, and one of them is asked for with each look, in turn, so
 * that work which goes on for long holds up no other's.
 *
 * <pre>
 * free → with a stream (SignalEvents.Node in the order of their values) → free
 *                                             '→ orphaned, its stream is gone → free
 *
 * field          | writer                     | reader | mode, guard
 * free           | who takes, gives back      | same   | lock
 * orphans: first | who destroys, asks         | same   | lock; a look whether there is one: none
 * and last       |                            |        |
 * all            | open                       | close  | plain; one after the other
 * Node.value     | who signals, before it is  | asker  | plain: the stream's lock
 *                | in the stream's list       |        |
 * Node.next      | who has the node           | same   | plain: the lock of whoever has it
 * </pre>
 */
final class SignalEvents {
  /**
   * Signals that may be outstanding at once: one for each of 256 streams that somebody waits for,
   * and for each three more positions. They take about 0.2 µs each to make.
   */
  static final int COUNT = 1_024;

  /** An event, and what it was recorded for last. */
  static final class Node {
    final long raw;
    long value;
    @Nullable Node next;

    private Node(long raw) {
      this.raw = raw;
    }
  }

  private final CudaApi api;
  private final SpinLock lock = new SpinLock();
  private final long[] all = new long[COUNT];
  private int made;
  private @Nullable Node free;
  private @Nullable Node firstOrphan;
  private @Nullable Node lastOrphan;

  SignalEvents(CudaApi api) {
    this.api = api;
  }

  /** Makes all events. The context is current. */
  void open(CudaContext context) {
    Scratch scratch = Scratch.take();
    try {
      while (made < COUNT) {
        int status = api.eventCreate(scratch.answer(), CudaEvent.DISABLE_TIMING);
        if (status != Status.SUCCESS) {
          throw context.failed(status, "cuEventCreate of an event for signals");
        }
        all[made++] = scratch.longAnswer();
        giveBack(new Node(scratch.longAnswer()));
      }
    } finally {
      scratch.giveBack();
    }
  }

  /** An event whose work has ended, or null. Any thread; never suspends. */
  @Nullable Node take() {
    lock.lock();
    try {
      Node node = free;
      if (node != null) {
        free = node.next;
        node.next = null;
      }
      return node;
    } finally {
      lock.unlock();
    }
  }

  /** It is known that its work has ended, or it was not recorded. */
  void giveBack(Node node) {
    lock.lock();
    try {
      node.next = free;
      free = node;
    } finally {
      lock.unlock();
    }
  }

  /** Takes over a list of nodes whose stream is gone. */
  void orphan(@Nullable Node first) {
    lock.lock();
    try {
      while (first != null) {
        Node next = first.next;
        first.next = null;
        if (lastOrphan == null) {
          firstOrphan = first;
        } else {
          lastOrphan.next = first;
        }
        lastOrphan = first;
        first = next;
      }
    } finally {
      lock.unlock();
    }
  }

  /** Asks for one orphan. One caller at a time, as for all queries; never suspends. */
  void askOrphan() {
    Node node = takeOrphan();
    if (node == null) {
      return;
    }
    if (api.eventQuery(node.raw) == Status.SUCCESS) {
      giveBack(node);
    } else {
      orphan(node);
    }
  }

  private @Nullable Node takeOrphan() {
    if (firstOrphan == null) { // a race is harmless: the next look finds it
      return null;
    }
    lock.lock();
    try {
      Node node = firstOrphan;
      if (node != null) {
        firstOrphan = node.next;
        node.next = null;
        if (firstOrphan == null) {
          lastOrphan = null;
        }
      }
      return node;
    } finally {
      lock.unlock();
    }
  }

  /** The context ends, and is current. What a lost one has goes with it. */
  void close() {
    for (int i = 0; i < made; i++) {
      api.eventDestroy(all[i]);
    }
    made = 0;
  }
}
