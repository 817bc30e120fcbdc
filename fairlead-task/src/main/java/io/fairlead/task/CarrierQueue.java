package io.fairlead.task;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import org.jspecify.annotations.Nullable;

/**
 * What is ready on one carrier, first in, first out: that carrier puts in, everybody takes out.
 * Bounded; what does not fit goes to the common queue.
 *
 * <pre>
 * put:  slot tail is clear → store there, then move tail
 * take: head < tail → move head by compare-and-set; the slots passed are the taker's: read, clear
 *
 * field   | writer            | reader       | mode, guard
 * tail    | own carrier       | takers       | release / acquire: what it passes is stored
 * head    | takers            | all          | compare-and-set: one taker for each index
 * slots[] | own carrier, then | the taker    | release / acquire. A taker that stops between the move
 *         | the taker         |              | of head and the read still finds its slot, because a
 *         |                   |              | slot that is not clear counts as full; and what has
 *         |                   |              | been taken is not kept from the collector
 * </pre>
 */
final class CarrierQueue {
  /** As many as a burst makes ready before anybody comes to help; 1 KiB of references. */
  static final int CAPACITY = 256;

  private static final int MASK = CAPACITY - 1;
  private static final VarHandle HEAD;
  private static final VarHandle TAIL;
  private static final VarHandle SLOT = MethodHandles.arrayElementVarHandle(Resumable[].class);

  static {
    try {
      MethodHandles.Lookup lookup = MethodHandles.lookup();
      HEAD = lookup.findVarHandle(CarrierQueue.class, "head", long.class);
      TAIL = lookup.findVarHandle(CarrierQueue.class, "tail", long.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private final @Nullable Resumable[] slots = new Resumable[CAPACITY];
  private volatile long head;
  private volatile long tail;

  /** Own carrier only. False if there is no room. */
  boolean offer(Resumable ready) {
    long at = tail; // own field
    int slot = (int) at & MASK;
    if (SLOT.getAcquire(slots, slot) != null) {
      return false;
    }
    SLOT.setRelease(slots, slot, ready);
    TAIL.setRelease(this, at + 1);
    return true;
  }

  /** The oldest, or null. Any thread. */
  @Nullable Resumable poll() {
    for (; ; ) {
      long at = head;
      if (at >= tail) {
        return null;
      }
      if (HEAD.compareAndSet(this, at, at + 1)) {
        return take(at);
      }
    }
  }

  /** Takes the older half, at most the given number: one to run, the others into the thief's. */
  @Nullable Resumable steal(CarrierQueue thief, ReadyQueue rest) {
    for (; ; ) {
      long at = head;
      long count = tail - at;
      if (count <= 0) {
        return null;
      }
      long half = Math.min((count + 1) / 2, CAPACITY / 2);
      if (HEAD.compareAndSet(this, at, at + half)) {
        Resumable first = take(at);
        for (long i = at + 1; i < at + half; i++) {
          Resumable other = take(i);
          if (!thief.offer(other)) {
            rest.add(other);
          }
        }
        return first;
      }
    }
  }

  private Resumable take(long at) {
    int slot = (int) at & MASK;
    // acquire: it was stored before tail passed it
    Resumable ready = (Resumable) SLOT.getAcquire(slots, slot);
    SLOT.setRelease(slots, slot, null);
    return ready;
  }

  boolean isEmpty() {
    return head >= tail;
  }
}
