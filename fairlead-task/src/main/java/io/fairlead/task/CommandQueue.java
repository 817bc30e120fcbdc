package io.fairlead.task;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import org.jspecify.annotations.Nullable;

/**
 * A bounded queue of commands: many producers, one consumer, no locks (after D. Vyukov's bounded
 * queue, with the producers' limit checked against the consumer's index as in JCTools).
 *
 * <pre>
 * a producer claims index p by compare-and-set of tail, then stores into slot p;
 * the consumer reads slot head until it is filled, clears it, and only then moves head.
 * close sets the top bit of tail: no claim succeeds after it, so what lies before it is all there is.
 *
 * field   | writer               | reader      | mode, guard
 * tail    | producers, closer    | both        | compare-and-set
 * head    | consumer             | producers   | release / acquire: a slot that counts as free is clear
 * slots[] | one producer, then   | consumer    | release / acquire: a command is seen with all that
 *         | the consumer         |             | was written before it was submitted
 * </pre>
 */
final class CommandQueue {
  private static final long CLOSED = Long.MIN_VALUE;
  private static final VarHandle TAIL;
  private static final VarHandle HEAD;
  private static final VarHandle SLOT = MethodHandles.arrayElementVarHandle(Runnable[].class);

  static {
    try {
      MethodHandles.Lookup lookup = MethodHandles.lookup();
      TAIL = lookup.findVarHandle(CommandQueue.class, "tail", long.class);
      HEAD = lookup.findVarHandle(CommandQueue.class, "head", long.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  enum Offer {
    ADDED,
    FULL,
    CLOSED
  }

  private final @Nullable Runnable[] slots;
  private final int mask;
  private volatile long tail;
  private volatile long head;

  CommandQueue(int capacity) {
    this.slots = new Runnable[capacity];
    this.mask = capacity - 1;
  }

  Offer offer(Runnable command) {
    for (; ; ) {
      long claimed = tail;
      if (claimed < 0) {
        return Offer.CLOSED;
      }
      // acquire: if head has passed the slot, the slot is clear
      if (claimed - (long) HEAD.getAcquire(this) > mask) {
        return Offer.FULL;
      }
      // compare-and-set: one producer for each index, none after close
      if (TAIL.weakCompareAndSet(this, claimed, claimed + 1)) {
        SLOT.setRelease(slots, (int) claimed & mask, command);
        return Offer.ADDED;
      }
    }
  }

  /** The next command, or null if there is none that is complete. Consumer only. */
  @Nullable Runnable poll() {
    long index = head; // own field
    int slot = (int) index & mask;
    Runnable command = (Runnable) SLOT.getAcquire(slots, slot);
    if (command == null) {
      return null;
    }
    SLOT.set(slots, slot, null); // plain: released by head below
    HEAD.setRelease(this, index + 1);
    return command;
  }

  /** Whether nothing was claimed that poll has not given. Exact for the consumer. */
  boolean isEmpty() {
    return (tail & ~CLOSED) == head;
  }

  int size() {
    return (int) ((tail & ~CLOSED) - head);
  }

  /** No offer succeeds from now on. */
  void close() {
    TAIL.getAndBitwiseOr(this, CLOSED);
  }
}
