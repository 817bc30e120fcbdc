package io.fairlead.device;

import io.fairlead.task.BriefLock;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * The streams that tasks draw from: an idle one first, then a new one up to the limit, then one
 * that has the fewest tasks on it, which is also what there is where the driver has no memory for a
 * new one. Streams are never given back to the driver before the context closes.
 *
 * <p>Streams are made on the owner's thread, one after the other, so that there is no reservation
 * to keep: who finds nothing to share goes there, looks again, and only then makes one. No lock is
 * held meanwhile, since the owner itself may be what waits for it: its own tasks take and give back
 * streams too.
 *
 * <p>Lock order: the lock is a leaf. It is taken once when a task first uses the device, and once
 * when that task ends.
 *
 * <pre>
 * field  | writer          | reader | mode, guard
 * slots  | owner           | any    | lock
 * leases | any             | any    | lock
 * shared | owner, once     | any    | volatile
 * </pre>
 */
final class StreamPool {
  private final DeviceContext context;
  private final int streamsMax;
  private final BriefLock lock = new BriefLock();
  private final List<Slot> slots = new ArrayList<>();
  private volatile @Nullable DeviceStream shared;

  StreamPool(DeviceContext context, int streamsMax) {
    this.context = context;
    this.streamsMax = streamsMax;
  }

  /** The one stream of all threads that never entered. May park for its creation. */
  DeviceStream leaseShared() {
    DeviceStream stream = shared;
    return stream != null ? stream : context.onOwner("create stream", this::makeShared);
  }

  /** On the owner. */
  private DeviceStream makeShared() {
    DeviceStream stream = shared; // several may have come at once
    if (stream == null) {
      try {
        stream = context.createPooled(0);
        shared = stream;
      } catch (OutOfDeviceMemoryException refused) {
        stream = share(0, 0, refused); // with tasks, until it is closed
      }
    }
    return stream;
  }

  /** A stream for one more task. May park for its creation. */
  DeviceStream lease(int priority) {
    DeviceStream stream = choose(priority);
    if (stream == null && askUnleased()) {
      stream = choose(priority);
    }
    return stream != null ? stream : context.onOwner("create stream", () -> make(priority));
  }

  /**
   * Asks about the streams that no task has, since nobody waits for them, so that one whose work
   * has ended is known to be idle. Without the lock: it calls the driver.
   *
   * @return whether any was asked
   */
  private boolean askUnleased() {
    List<StreamCore> unknown = new ArrayList<>();
    lock.lock();
    try {
      for (Slot each : slots) {
        if (each.leases == 0 && each.stream.core().mustAsk()) {
          unknown.add(each.stream.core());
        }
      }
    } finally {
      lock.unlock();
    }
    unknown.forEach(core -> core.isDueIfAsked(core.enqueued()));
    return !unknown.isEmpty();
  }

  /** On the owner. */
  private DeviceStream make(int priority) {
    DeviceStream known = choose(priority); // others may have made the last one, or given one back
    if (known != null) {
      return known;
    }
    Slot made;
    try {
      made = new Slot(context.createPooled(priority), priority);
    } catch (OutOfDeviceMemoryException refused) {
      return share(priority, 1, refused);
    }
    made.leases = 1;
    lock.lock();
    try {
      slots.add(made);
      return made.stream;
    } finally {
      lock.unlock();
    }
  }

  /** A stream that is there, now with one more task on it; null if one is to be made. */
  private @Nullable DeviceStream choose(int priority) {
    lock.lock();
    try {
      Slot chosen = best(priority, true);
      if (chosen == null || chosen.leases > 0 || !chosen.isIdle()) {
        if (slots.size() < streamsMax) {
          return null;
        }
        chosen = chosen != null ? chosen : best(priority, false);
      }
      if (chosen == null) {
        throw new AssertionError("a full pool has streams");
      }
      chosen.leases++;
      return chosen.stream;
    } finally {
      lock.unlock();
    }
  }

  /** With others, since the driver has no memory for another one. On the owner. */
  private DeviceStream share(int priority, int leases, OutOfDeviceMemoryException refused) {
    lock.lock();
    try {
      Slot chosen = best(priority, true);
      chosen = chosen != null ? chosen : best(priority, false);
      if (chosen == null) {
        throw refused;
      }
      chosen.leases += leases;
      return chosen.stream;
    } finally {
      lock.unlock();
    }
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
