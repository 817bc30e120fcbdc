package io.fairlead.ffi.cuda;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Has the driver put together, or return, what was freed in its pool.
 *
 * <p>It does so in calls that wait for the device, and in no others: asked only, or watched by
 * tickets, it refused the first request of a trace with 8 % of the memory unused, in pieces; where
 * each free was waited for, with 1 to 3 % (driver 580, see decision 0027). So an event is recorded
 * behind what is freed, and before a large request those that have ended are waited for: that
 * returns at once, and takes some microseconds, or a millisecond where memory goes back.
 *
 * <pre>
 * a stream: nothing freed --free--> an event is recorded --it has ended: settle--> nothing freed
 *                                        | free: more
 *                                        '--it has ended: settle, more--> recorded again
 *
 * field            | writer             | reader | mode, guard
 * pending          | who frees, settles | same   | lock
 * any              | the same           | any    | volatile: a hint
 * CudaStream.freed, Freed.more | the same | same  | lock
 * settling         | who settles        | same   | compare-and-set: one at a time
 * </pre>
 *
 * <p>Streams that others have a name for are left out: they may capture them. Any thread; never
 * waits.
 */
final class FreedMemory {
  /** Smaller requests find a piece; they also come often. */
  static final long LARGE_BYTES = 2L << 20;

  /**
   * Streams that are seen to at a time, those that have gone included: until a large request comes
   * each keeps one of the events that signals need, too.
   */
  private static final int PENDING_MAX = SignalEvents.COUNT / 8;

  /** What one stream has freed, from the free on that its event stands behind. */
  static final class Freed {
    private final CudaStream stream;
    private final SignalEvents.Node event;
    private boolean more;

    private Freed(CudaStream stream, SignalEvents.Node event) {
      this.stream = stream;
      this.event = event;
    }
  }

  private final CudaContext context;
  private final CudaApi api;
  private final SpinLock lock = new SpinLock();
  private final List<Freed> pending = new ArrayList<>();
  private final AtomicBoolean settling = new AtomicBoolean();
  private volatile boolean any;

  FreedMemory(CudaContext context) {
    this.context = context;
    this.api = context.api;
  }

  /** Something was freed on the stream, which is entered and not captured. */
  void freed(CudaStream stream) {
    if (stream.isLent() || isKnownOrTooMany(stream)) {
      return;
    }
    SignalEvents.Node event = context.events.take();
    if (event == null) {
      return; // all are under way: the driver keeps it in pieces for longer
    }
    if (api.eventRecord(event.raw, stream.raw) != Status.SUCCESS) {
      context.events.giveBack(event);
      return;
    }
    if (!add(new Freed(stream, event))) {
      context.events.orphan(event); // another thread freed on it just then
    }
  }

  private boolean isKnownOrTooMany(CudaStream stream) {
    lock.lock();
    try {
      Freed known = stream.freed;
      if (known != null) {
        known.more = true;
      }
      return known != null || pending.size() >= PENDING_MAX;
    } finally {
      lock.unlock();
    }
  }

  private boolean add(Freed freed) {
    lock.lock();
    try {
      if (freed.stream.freed != null) {
        return false;
      }
      freed.stream.freed = freed;
      pending.add(freed);
      any = true;
      return true;
    } finally {
      lock.unlock();
    }
  }

  /** Before a request of so many bytes. */
  void settle(long bytes) {
    if (bytes < LARGE_BYTES || !any || !settling.compareAndSet(false, true)) {
      return;
    }
    try {
      for (Freed each : snapshot()) {
        settle(each);
      }
    } finally {
      settling.set(false);
    }
  }

  private List<Freed> snapshot() {
    lock.lock();
    try {
      return List.copyOf(pending);
    } finally {
      lock.unlock();
    }
  }

  private void settle(Freed freed) {
    int status = api.eventQuery(freed.event.raw);
    if (status != Status.SUCCESS) {
      context.seen(status, "cuEventQuery");
      return;
    }
    int _ = api.eventSynchronize(freed.event.raw); // it has ended; a fault is seen elsewhere
    if (isAll(freed)) {
      context.events.giveBack(freed.event);
    } else if (!recordAgain(freed)) {
      drop(freed);
      context.events.giveBack(freed.event);
    }
  }

  /** Whether nothing was freed after what was waited for; then it is known no more. */
  private boolean isAll(Freed freed) {
    lock.lock();
    try {
      boolean all = !freed.more;
      freed.more = false;
      if (all) {
        remove(freed);
      }
      return all;
    } finally {
      lock.unlock();
    }
  }

  private void drop(Freed freed) {
    lock.lock();
    try {
      remove(freed);
    } finally {
      lock.unlock();
    }
  }

  private void remove(Freed freed) {
    freed.stream.freed = null;
    pending.remove(freed);
    any = !pending.isEmpty();
  }

  /** Behind all that the stream has freed by now; false if it cannot be. */
  private boolean recordAgain(Freed freed) {
    CudaStream stream = freed.stream;
    if (stream.isLent() || !stream.enter()) {
      return false;
    }
    try {
      if (!stream.mayAsk()) {
        return false; // it is being captured, and would record into that
      }
      try {
        return api.eventRecord(freed.event.raw, stream.raw) == Status.SUCCESS;
      } finally {
        stream.asked();
      }
    } finally {
      stream.exit();
    }
  }
}
