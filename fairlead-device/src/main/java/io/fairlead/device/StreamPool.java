package io.fairlead.device;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.ReentrantLock;
import org.jspecify.annotations.Nullable;

/**
 * The streams that tasks draw from: an idle one first, then a new one up to the limit, then one
 * that has the fewest tasks on it. Streams are never given back to the driver before the context
 * closes.
 *
 * <p>Lock order: the pool's lock comes before a stream's turn, and is held while the owner creates
 * a stream (the owner never takes it). It is taken once when a task first uses the device, and once
 * when that task ends.
 *
 * <pre>
 * field  | writer | reader | mode, guard
 * slots  | any    | any    | lock
 * shared | any    | any    | lock
 * </pre>
 */
final class StreamPool {
  private final DeviceContext context;
  private final int streamsMax;
  private final ReentrantLock lock = new ReentrantLock();
  private final List<Slot> slots = new ArrayList<>();
  private @Nullable DeviceStream shared;

  StreamPool(DeviceContext context, int streamsMax) {
    this.context = context;
    this.streamsMax = streamsMax;
  }

  void lock() {
    lock.lock();
  }

  void unlock() {
    lock.unlock();
  }

  /** The one stream of all threads that never entered. Lock held; may park for its creation. */
  DeviceStream leaseShared() {
    DeviceStream stream = shared;
    if (stream == null) {
      stream = context.createPooled(0);
      shared = stream;
    }
    return stream;
  }

  /** A stream for one more task. Lock held; may park for its creation. */
  DeviceStream lease(int priority) {
    Slot slot = choose(priority);
    slot.leases++;
    return slot.stream;
  }

  private Slot choose(int priority) {
    Slot free = best(priority, true);
    if (free != null && free.leases == 0 && free.isIdle()) {
      return free;
    }
    if (slots.size() < streamsMax) {
      Slot made = new Slot(context.createPooled(priority), priority);
      slots.add(made);
      return made;
    }
    Slot same = free != null ? free : best(priority, false);
    if (same == null) {
      throw new AssertionError("a full pool has streams");
    }
    return same;
  }

  /** The stream with the fewest tasks, an idle one among equals. */
  private @Nullable Slot best(int priority, boolean samePriority) {
    Slot best = null;
    for (Slot each : slots) {
      boolean fits = !samePriority || each.priority == priority;
      if (fits && (best == null || each.isBetterThan(best))) {
        best = each;
      }
    }
    return best;
  }

  /** The task that had it has ended. Its work may go on; the next task's comes after that. */
  void giveBack(DeviceStream stream) {
    // so that the stream is seen to be idle later without anybody having to wait for it
    stream.core().announceEnd();
    lock.lock();
    try {
      for (Slot each : slots) {
        if (each.stream == stream) {
          each.leases--;
          return;
        }
      }
    } finally {
      lock.unlock();
    }
  }

  int size() {
    lock.lock();
    try {
      return slots.size();
    } finally {
      lock.unlock();
    }
  }

  private static final class Slot {
    final DeviceStream stream;
    final int priority;
    int leases;

    Slot(DeviceStream stream, int priority) {
      this.stream = stream;
      this.priority = priority;
    }

    boolean isIdle() {
      StreamCore core = stream.core();
      return core.isDue(core.enqueued());
    }

    boolean isBetterThan(Slot other) {
      if (leases != other.leases) {
        return leases < other.leases;
      }
      return !other.isIdle() && isIdle();
    }
  }
}
