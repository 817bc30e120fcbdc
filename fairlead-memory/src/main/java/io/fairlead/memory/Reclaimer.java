package io.fairlead.memory;

import io.fairlead.device.DeviceStream;
import io.fairlead.device.Mark;
import io.fairlead.fault.DeadlineExceededException;
import java.time.Duration;
import java.util.Iterator;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Frees that were enqueued and that the device has not reached. Their bytes count as used until
 * then.
 *
 * <p>As long as there is memory, nobody waits for it: the list is looked through now and then,
 * which costs a comparison each. Once somebody waits, every entry, and each that is added, is
 * <i>watched</i>: its completion gives the bytes back and so wakes the waiter.
 *
 * <pre>
 * LISTED --somebody waits for memory--> WATCHED --reached or failed--> RELEASED
 *       \------------------ found reached -----------------------------^
 * </pre>
 *
 * Lock-free; the thread that moves an entry to RELEASED gives its bytes back.
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
   * The bytes of {@code charge}, which was {@link Budget#closing}, are free once {@code stream} has
   * reached operation {@code sequence}.
   */
  void add(DeviceStream stream, long sequence, Charge charge) {
    Entry entry = new Entry(new Mark(stream, sequence), charge);
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
      if (entry.state.get() == Entry.RELEASED || isReached(entry)) {
        each.remove();
        release(entry);
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
    Entry oldest = entries.peek();
    if (oldest != null) {
      try {
        oldest.mark.stream().reached(oldest.mark).await(Duration.ofNanos(nanos));
      } catch (DeadlineExceededException late) {
        return false;
      }
    }
    sweep();
    return true;
  }

  /** From here on, every entry that is listed now wakes waiters when it is reached. */
  void watch() {
    for (Entry entry : entries) {
      watch(entry);
    }
  }

  private void watch(Entry entry) {
    if (entry.state.compareAndSet(Entry.LISTED, Entry.WATCHED)) {
      // Also when it fails: the memory ended with its context. The next sweep unlists it.
      entry.mark.stream().reached(entry.mark).onDone(done -> release(entry));
    }
  }

  private static boolean isReached(Entry entry) {
    return entry.mark.stream().isReached(entry.mark);
  }

  private void release(Entry entry) {
    if (entry.state.getAndSet(Entry.RELEASED) != Entry.RELEASED) {
      budget.release(entry.charge);
    }
  }

  private static final class Entry {
    static final int LISTED = 0;
    static final int WATCHED = 1;
    static final int RELEASED = 2;

    final Mark mark;
    final Charge charge;
    final AtomicInteger state = new AtomicInteger(LISTED);

    Entry(Mark mark, Charge charge) {
      this.mark = mark;
      this.charge = charge;
    }
  }
}
