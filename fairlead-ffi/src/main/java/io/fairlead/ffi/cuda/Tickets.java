package io.fairlead.ffi.cuda;

import java.lang.foreign.Arena;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.jspecify.annotations.Nullable;

/**
 * One word of page-locked memory for each stream of a context: the stream writes its ticket there,
 * the host reads it.
 *
 * <p>A slot is on a cache line of its own, since the device writes one while hosts read others. The
 * slot of a destroyed stream is used again once its last ticket has arrived, not before: the device
 * would write an old ticket over a new stream's.
 *
 * <p>Pages are memory of this process that is registered with the context, and are never given back
 * to the system: a poller may look at a stream in the moment in which its context ends, and must
 * not find the page gone. Later contexts use them again.
 *
 * <h2>Permits</h2>
 *
 * A ticket behind long work occupies one of the device's hardware queues, so only {@code limit}
 * streams may have one outstanding. A stream that may has a permit, and keeps it until another one
 * wants it while no ticket of the first is outstanding:
 *
 * <pre>
 * NONE → BUSY   a permit was free, or its holder was IDLE and all of its tickets had arrived
 * IDLE → BUSY   {@link #begin}: a ticket is being enqueued
 * BUSY → IDLE   {@link #end}
 * IDLE → NONE   another stream takes the permit, or the slot goes to another stream; under lock. Who
 *               takes it looks at the tickets once more, since the holder may have enqueued one
 *               between the look and the change, and then puts IDLE back
 *
 * field         | writer              | reader | mode, guard
 * free, retired | any                 | any    | lock
 * holders       | begin, take         | same   | lock
 * pages         | who grows, close    | close  | lock
 * Slot.permit   | see above           | any    | CAS
 * Slot.last     | who signals; take   | any    | volatile, before the driver is told: a reader that
 *               |                     |        | finds a word and then reads this finds no less
 * </pre>
 */
final class Tickets {
  private static final int SLOT_BYTES = 64;
  private static final int PAGE_BYTES = 16 << 10;
  private static final int PORTABLE_AND_MAPPED = 0x01 | 0x02;

  private static final int NONE = 0;
  private static final int IDLE = 1;
  private static final int BUSY = 2;

  /** Pages that no context uses; lock-free. */
  private static final Queue<Long> UNUSED = new ConcurrentLinkedQueue<>();

  private static final VarHandle PERMIT;

  static {
    try {
      PERMIT = MethodHandles.lookup().findVarHandle(Slot.class, "permit", int.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  /** A stream's word, by the host's and by the device's address. */
  static final class Slot {
    final long host;
    final long device;

    /** The last ticket that the stream was told to write. */
    volatile long last;

    private volatile int permit = NONE;

    private Slot(long host, long device) {
      this.host = host;
      this.device = device;
    }
  }

  private final CudaApi api;
  private final boolean wide;
  private final SpinLock lock = new SpinLock();
  private final ArrayDeque<Slot> free = new ArrayDeque<>();
  private final ArrayDeque<Slot> retired = new ArrayDeque<>();
  private final List<Long> pages = new ArrayList<>();
  private final @Nullable Slot[] holders;

  /**
   * @param limit streams that may have a ticket outstanding at once
   */
  Tickets(CudaApi api, boolean wide, int limit) {
    this.api = api;
    this.wide = wide;
    this.holders = new Slot[limit];
  }

  /** A slot that reads 0. The context is current: the pool may have to grow. */
  Slot take(CudaContext context) {
    Slot slot = unused();
    while (slot == null) {
      grow(context);
      slot = unused();
    }
    return slot;
  }

  private @Nullable Slot unused() {
    lock.lock();
    try {
      Slot slot = free.poll();
      if (slot == null) {
        slot = arrived();
      }
      if (slot != null) {
        reset(slot);
      }
      return slot;
    } finally {
      lock.unlock();
    }
  }

  /** A retired slot whose last ticket has arrived. Lock held. */
  private @Nullable Slot arrived() {
    for (Iterator<Slot> each = retired.iterator(); each.hasNext(); ) {
      Slot slot = each.next();
      if (hasArrived(slot)) {
        each.remove();
        return slot;
      }
    }
    return null;
  }

  /** Lock held; no stream has the slot. */
  private void reset(Slot slot) {
    for (int i = 0; i < holders.length; i++) {
      if (holders[i] == slot) {
        holders[i] = null;
      }
    }
    slot.permit = NONE;
    slot.last = 0;
    // release: the device is told of the slot after this
    Memory.setLongRelease(slot.host, 0);
  }

  /** How far the slot's stream has come, by its tickets. */
  long reached(Slot slot) {
    if (wide) {
      return Memory.getLongAcquire(slot.host);
    }
    int arrived = Memory.getIntAcquire(slot.host);
    return extend(arrived, slot.last);
  }

  /** Whether no ticket is outstanding, if nobody is about to enqueue one. */
  private boolean hasArrived(Slot slot) {
    return reached(slot) >= slot.last;
  }

  /** The 64-bit value of which the lower half arrived; fewer than 2^31 are under way. */
  static long extend(int arrived, long last) {
    return last - Integer.toUnsignedLong((int) last - arrived);
  }

  /**
   * Whether the slot's stream may be told to write a ticket; {@link #end} follows. One caller for
   * each slot at a time. Never suspends.
   */
  boolean begin(Slot slot) {
    if (PERMIT.compareAndSet(slot, IDLE, BUSY)) {
      return true;
    }
    return holders.length > 0 && takePermit(slot);
  }

  private boolean takePermit(Slot slot) {
    lock.lock();
    try {
      if (PERMIT.compareAndSet(slot, IDLE, BUSY)) {
        return true; // somebody wanted it, and put it back
      }
      for (int i = 0; i < holders.length; i++) {
        Slot holder = holders[i];
        if (holder == null || givesUp(holder)) {
          holders[i] = slot;
          slot.permit = BUSY;
          return true;
        }
      }
      return false;
    } finally {
      lock.unlock();
    }
  }

  /** Lock held. */
  private boolean givesUp(Slot holder) {
    if (!hasArrived(holder) || !PERMIT.compareAndSet(holder, IDLE, NONE)) {
      return false;
    }
    if (hasArrived(holder)) {
      return true;
    }
    holder.permit = IDLE;
    return false;
  }

  /** The driver has been told, or has refused. */
  void end(Slot slot) {
    slot.permit = IDLE;
  }

  /** The slot's stream is gone. Never suspends. */
  void giveBack(Slot slot) {
    lock.lock();
    try {
      retired.add(slot);
    } finally {
      lock.unlock();
    }
  }

  /** One more page. The context is current. */
  void grow(CudaContext context) {
    Long known = UNUSED.poll();
    long page = known != null ? known : Arena.global().allocate(PAGE_BYTES, 4096).address();
    int status = api.memHostRegister(page, PAGE_BYTES, PORTABLE_AND_MAPPED);
    if (status != Status.SUCCESS) {
      UNUSED.add(page);
      throw context.failed(status, "cuMemHostRegister of a page for signals");
    }
    long device = devicePointer(context, page);
    lock.lock();
    try {
      pages.add(page);
      for (int offset = 0; offset < PAGE_BYTES; offset += SLOT_BYTES) {
        free.add(new Slot(page + offset, device + offset));
      }
    } finally {
      lock.unlock();
    }
  }

  private long devicePointer(CudaContext context, long page) {
    Scratch scratch = Scratch.take();
    try {
      int status = api.memHostGetDevicePointer(scratch.answer(), page, 0);
      if (status != Status.SUCCESS) {
        api.memHostUnregister(page);
        UNUSED.add(page);
        throw context.failed(status, "cuMemHostGetDevicePointer of a page for signals");
      }
      return scratch.longAnswer();
    } finally {
      scratch.giveBack();
    }
  }

  /**
   * The context ends; it is current, and all its work has ended. A page that cannot be unregistered
   * (the context is lost) is not used again: nobody knows what the driver thinks of it.
   */
  void close() {
    for (long page : pages) {
      if (api.memHostUnregister(page) == Status.SUCCESS) {
        UNUSED.add(page);
      }
    }
    pages.clear();
  }
}
