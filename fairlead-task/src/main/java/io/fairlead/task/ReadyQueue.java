package io.fairlead.task;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import org.jspecify.annotations.Nullable;

/**
 * What is ready and lies with no carrier yet: woken by threads that are none, or more than one
 * carrier's own queue holds. Intrusive: never refuses, needs no memory, is bounded by live threads.
 *
 * <pre>
 * add:  push onto the inbox
 * take: with the lock, which is only tried: if the outbox is empty, all of the inbox, reversed, is
 *       the outbox; then the oldest of it
 *
 * field   | writer                 | reader  | mode, guard
 * inbox   | anyone (push), consumer (take all) | both | compare-and-set / getAndSet
 * lock    | consumers              | same    | a try-lock: who fails goes on without
 * outbox  | consumer               | anyone (isEmpty) | under the lock; volatile for those who look
 * count   | consumer               | same    | under the lock: length of the outbox
 * taken   | consumer               | watcher | under the lock; opaque: a hint
 * </pre>
 */
final class ReadyQueue {
  private static final VarHandle INBOX;
  private static final VarHandle LOCK;
  private static final VarHandle TAKEN;

  static {
    try {
      MethodHandles.Lookup lookup = MethodHandles.lookup();
      INBOX = lookup.findVarHandle(ReadyQueue.class, "inbox", Resumable.class);
      LOCK = lookup.findVarHandle(ReadyQueue.class, "lock", int.class);
      TAKEN = lookup.findVarHandle(ReadyQueue.class, "taken", long.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  /** Most that one carrier takes at once: a quarter of what its own queue holds. */
  private static final int BATCH_MAX = CarrierQueue.CAPACITY / 4;

  private volatile @Nullable Resumable inbox;

  @SuppressWarnings("unused") // through LOCK
  private volatile int lock;

  private volatile @Nullable Resumable outbox;
  private int count;
  private long taken;

  /** Any thread; lock-free. */
  void add(Resumable ready) {
    for (; ; ) {
      Resumable head = inbox;
      ready.next = head;
      // compare-and-set: publishes it and its link
      if (INBOX.compareAndSet(this, head, ready)) {
        return;
      }
    }
  }

  /**
   * Whether nothing lies here. Never says so while a consumer has the inbox in its hands: it is
   * looked at in the order in which things move.
   */
  boolean isEmpty() {
    return inbox == null && lock == 0 && outbox == null;
  }

  /** How often somebody took from here; for the watcher. */
  long taken() {
    return (long) TAKEN.getOpaque(this);
  }

  /**
   * The oldest, or null if there is none or somebody else takes just now. A fair share of the rest
   * goes to the caller's own queue.
   */
  @Nullable Resumable take(CarrierQueue own, int carriers) {
    if ((inbox == null && outbox == null) || !LOCK.compareAndSet(this, 0, 1)) {
      return null;
    }
    try {
      Resumable first = takeOne();
      if (first != null) {
        TAKEN.setOpaque(this, taken + 1);
        int share = Math.min(count / carriers, BATCH_MAX);
        for (int i = 0; i < share; i++) {
          Resumable more = outbox;
          if (more == null || !giveTo(own, more)) {
            break;
          }
        }
      }
      return first;
    } finally {
      lock = 0; // volatile: who finds it free sees the outbox
    }
  }

  /** The oldest, or null; for a queue that one thread takes from. */
  @Nullable Resumable poll() {
    return inbox == null && outbox == null ? null : takeOne();
  }

  private boolean giveTo(CarrierQueue own, Resumable ready) {
    Resumable following = ready.next;
    ready.next = null; // from the offer on, another may take it, run it and queue it anew
    if (!own.offer(ready)) {
      ready.next = following;
      return false;
    }
    outbox = following; // after the offer: it is never in neither
    count--;
    return true;
  }

  private @Nullable Resumable takeOne() {
    Resumable first = outbox;
    if (first == null) {
      first = refill();
      if (first == null) {
        return null;
      }
    }
    outbox = first.next;
    first.next = null;
    count--;
    return first;
  }

  private @Nullable Resumable refill() {
    Resumable reversed = null;
    int found = 0;
    for (Resumable ready = (Resumable) INBOX.getAndSet(this, null); ready != null; ) {
      Resumable following = ready.next;
      ready.next = reversed;
      reversed = ready;
      ready = following;
      found++;
    }
    count = found;
    return reversed;
  }
}
