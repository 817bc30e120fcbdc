package io.fairlead.ffi.cuda;

import java.lang.foreign.Arena;
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
 * slot of a destroyed stream is used again once its last signal has arrived, not before: the device
 * would write an old ticket over a new stream's.
 *
 * <p>Pages are memory of this process that is registered with the context, and are never given back
 * to the system: a poller may look at a stream in the moment in which its context ends, and must
 * not find the page gone. Later contexts use them again.
 *
 * <pre>
 * field         | writer            | reader | mode, guard
 * free, retired | any               | any    | lock
 * pages         | who grows, close  | close  | lock
 * Slot.last     | who gives it back | take   | lock
 * </pre>
 */
final class Tickets {
  private static final int SLOT_BYTES = 64;
  private static final int PAGE_BYTES = 16 << 10;
  private static final int PORTABLE_AND_MAPPED = 0x01 | 0x02;

  /** Pages that no context uses; lock-free. */
  private static final Queue<Long> UNUSED = new ConcurrentLinkedQueue<>();

  /** A stream's word, by the host's and by the device's address. */
  static final class Slot {
    final long host;
    final long device;
    private long last;

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

  Tickets(CudaApi api, boolean wide) {
    this.api = api;
    this.wide = wide;
  }

  /** A slot that reads 0. The context is current: the pool may have to grow. */
  Slot take(CudaContext context) {
    Slot slot = unused();
    while (slot == null) {
      grow(context);
      slot = unused();
    }
    // release: the device is told of the slot after this
    Memory.setLongRelease(slot.host, 0);
    return slot;
  }

  private @Nullable Slot unused() {
    lock.lock();
    try {
      Slot slot = free.poll();
      return slot != null ? slot : arrived();
    } finally {
      lock.unlock();
    }
  }

  /** A retired slot whose last signal has arrived. Lock held. */
  private @Nullable Slot arrived() {
    for (Iterator<Slot> each = retired.iterator(); each.hasNext(); ) {
      Slot slot = each.next();
      if (reached(slot, slot.last) == slot.last) {
        each.remove();
        return slot;
      }
    }
    return null;
  }

  /**
   * How far the slot's stream is.
   *
   * @param signalled the last value that was signalled, read after the word if that can change
   */
  private long reached(Slot slot, long signalled) {
    return wide
        ? Memory.getLongAcquire(slot.host)
        : extend(Memory.getIntAcquire(slot.host), signalled);
  }

  /** The 64-bit value of which the lower half arrived; fewer than 2^31 are under way. */
  static long extend(int arrived, long signalled) {
    return signalled - Integer.toUnsignedLong((int) signalled - arrived);
  }

  /** The slot's stream is gone; {@code last} is the last value that it signals. Never suspends. */
  void giveBack(Slot slot, long last) {
    lock.lock();
    try {
      slot.last = last;
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
