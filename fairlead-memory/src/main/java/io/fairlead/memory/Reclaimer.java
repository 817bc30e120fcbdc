package io.fairlead.memory;

import io.fairlead.device.Mark;
import io.fairlead.fault.DeadlineExceededException;
import io.fairlead.fault.Mutant;
import io.fairlead.task.Completion;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.time.Duration;
import java.util.Iterator;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import org.jspecify.annotations.Nullable;

/**
 * Memory that was given back and that the device has not done with. Its bytes count as used until
 * then.
 *
 * <p>As long as there is memory, nobody waits for it: the list is looked through now and then,
 * which costs a comparison each. Once somebody waits, every entry, and each that is added, is
 * <i>watched</i>: its completion gives the bytes back and so wakes the waiter.
 *
 * <pre>
 * LISTED --somebody waits for memory--> WATCHED --reached, or ended with its context--> RELEASED
 *     | \------------------ found reached -----------------------------^    |
 *     \-- reused before that, by one who comes after it (also from WATCHED) --> TAKEN &lt;-- reused
 * </pre>
 *
 * Lock-free; the thread that moves an entry to RELEASED gives its bytes back, the one that moves it
 * to TAKEN has it.
 */
final class Reclaimer {
  /** Looking through this many takes about a microsecond, and it is done once for as many frees. */
  private static final int SWEEP_MIN = 64;

  private final Budget budget;
  private final ConcurrentLinkedQueue<Entry> entries = new ConcurrentLinkedQueue<>();
  private final AtomicInteger sinceSweep = new AtomicInteger();

  /** Volatile and without an update protocol: a lost write only moves the next sweep. */
  private volatile int sweepAt = SWEEP_MIN;

  Reclaimer(Budget budget) {
    this.budget = budget;
  }

  /**
   * The bytes of the entry's charge, which was {@link Budget#closing}, are free once it is reached.
   */
  void add(Entry entry) {
    entries.add(entry);
    // After the entry is listed: a request that is not seen here has yet to look at the list.
    if (budget.hasWaiting()) {
      watch(entry);
    }
    if (sinceSweep.incrementAndGet() >= sweepAt) {
      sweep();
    }
  }

  /** Gives back what the device has reached. Any thread, does not block. */
  void sweep() {
    sinceSweep.set(0);
    int kept = 0;
    for (Iterator<Entry> each = entries.iterator(); each.hasNext(); ) {
      Entry entry = each.next();
      if (!entry.isUnreached() || entry.frontier.isReached()) {
        each.remove();
        release(entry); // nothing is left of it if it was taken
      } else {
        kept++;
      }
    }
    // What waits behind a long kernel stays: looking at it again each time would be quadratic.
    sweepAt = Math.max(SWEEP_MIN, kept);
  }

  /**
   * Waits until the device has reached the oldest entry. Parks the task.
   *
   * @return false if it did not within {@code nanos}
   */
  boolean awaitOldest(long nanos) {
    Frontier oldest = oldest();
    long end = System.nanoTime() + nanos;
    for (int i = 0; oldest != null && i < oldest.size(); i++) {
      Mark mark = oldest.mark(i);
      try {
        long left = Math.max(0, end - System.nanoTime());
        mark.stream().reached(mark).await(Duration.ofNanos(left));
      } catch (DeadlineExceededException late) {
        return false;
      }
    }
    sweep();
    return true;
  }

  private @Nullable Frontier oldest() {
    for (Entry entry : entries) {
      if (entry.isUnreached()) {
        return entry.frontier;
      }
    }
    return null;
  }

  /** From here on, every entry that is listed now wakes waiters when it is reached. */
  void watch() {
    for (Entry entry : entries) {
      watch(entry);
    }
  }

  private void watch(Entry entry) {
    if (entry.move(Entry.LISTED, Entry.WATCHED)) {
      watch(entry, 0);
    }
  }

  /** One use after the other: the last one to end is the one that counts. */
  private void watch(Entry entry, int next) {
    if (next == entry.frontier.size()) {
      release(entry);
    } else {
      Mark mark = entry.frontier.mark(next);
      Frontier.endOf(mark).onDone(done -> watched(entry, next, done));
    }
  }

  private void watched(Entry entry, int index, Completion<Void> done) {
    if (done.cause() == null || entry.frontier.mark(index).stream().context().isLost()) {
      // A use that ended with its context says nothing of the others, whose device may be another.
      watch(entry, index + 1);
    } else {
      entry.move(Entry.WATCHED, Entry.LISTED); // not known to be reached: a sweep may tell
    }
  }

  private void release(Entry entry) {
    if (!entry.isUnreached()) {
      return;
    }
    boolean late = Mutant.on("pool.ready.late");
    if (!late) {
      entry.reaching();
    }
    if (entry.take(Entry.RELEASED)) {
      if (late) {
        entry.reaching();
      }
      entry.reached();
      budget.release(entry.charge);
    } else {
      entry.missed();
    }
  }

  /** The context is lost: what would be reached by it never is, and takes nothing any more. */
  void abandon() {
    for (Entry entry : entries) {
      release(entry);
    }
  }

  /** Memory that was given back, and up to where it was used. */
  static class Entry {
    private static final int LISTED = 0;
    private static final int WATCHED = 1;
    private static final int RELEASED = 2;
    private static final int TAKEN = 3;
    private static final VarHandle STATE;

    static {
      try {
        STATE = MethodHandles.lookup().findVarHandle(Entry.class, "state", int.class);
      } catch (ReflectiveOperationException e) {
        throw new ExceptionInInitializerError(e);
      }
    }

    final Frontier frontier;
    final Charge charge;

    @SuppressWarnings("unused") // through STATE
    private volatile int state;

    /** It is RELEASED from the beginning if nothing is left to be reached. */
    Entry(Frontier frontier, Charge charge) {
      this.frontier = frontier;
      this.charge = charge;
      // plain: whoever finds it finds it in a queue or a bin, where it is put later
      STATE.set(this, frontier == Frontier.NONE ? RELEASED : LISTED);
    }

    /** Whether the device is not known to have done with it, and nobody has taken it. */
    final boolean isUnreached() {
      return state <= WATCHED;
    }

    final boolean isReleased() {
      return state == RELEASED;
    }

    /** By its next user, who comes after it; false if it is too late for that. */
    final boolean takeUnreached() {
      return take(TAKEN);
    }

    /** By its next user, or who returns it to the driver. */
    final boolean takeReleased() {
      return move(RELEASED, TAKEN);
    }

    private boolean take(int to) {
      return move(LISTED, to) || move(WATCHED, to);
    }

    private boolean move(int from, int to) {
      return STATE.compareAndSet(this, from, to);
    }

    /** The device has done with it, and it is about to be RELEASED. Must not block. */
    void reaching() {}

    /** After {@link #reaching}: somebody else was faster. Must not block. */
    void missed() {}

    /** It is RELEASED. Once, before its bytes are given back; must not block. */
    void reached() {}
  }
}
