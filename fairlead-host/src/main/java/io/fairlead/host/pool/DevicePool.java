package io.fairlead.host.pool;

import static java.util.Objects.requireNonNull;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import org.jspecify.annotations.Nullable;

/**
 * The memory of one context on one device: at most {@code limit} bytes, handed out in stream order.
 *
 * <h2>Space</h2>
 *
 * Real memory comes in slabs, made when they are first needed. A slab is zeroed when it is made, as
 * {@link Arena} demands, and never again: a block holds whatever was there. Within a slab, chunks
 * split and grow together; a request takes the tightest chunk at hand ({@link FreeIndex}), a small
 * one its low end and a large one its high end, so that few long-lived small blocks do not lie
 * between large ones. If none fits and the limit is reached, slabs that are wholly free are given
 * up for one of the right size, so that a limit split into small slabs still serves a large
 * request.
 *
 * <h2>Time</h2>
 *
 * A free counts twice. When it is called, the space moves to its stream's cache: that stream may
 * have it again at once. When it runs, everybody may.
 *
 * <h2>Locking</h2>
 *
 * One {@link SpinLock}; nothing is called under it. Slabs are made and closed outside: zeroing 64
 * MiB takes milliseconds. {@link #find} takes no lock: {@code slabs} is replaced, never changed.
 */
public final class DevicePool {
  private static final long SLAB_BYTES = 64L << 20;
  private static final long SLAB_BYTES_MIN = 1L << 20;

  /**
   * The first slab; later ones are as large as all before, up to {@link #SLAB_BYTES}. What nobody
   * uses is not zeroed: a page costs several microseconds when it is touched first, so 64 MiB would
   * take a good part of a small job's time.
   */
  private static final long SLAB_BYTES_FIRST = 16L << 20;

  /** Granules of what lies at the low end of its chunk: 64 KiB, as traces that fill it say. */
  private static final long LOW_MAX = (64L << 10) >>> Slab.GRANULE_BITS;

  private final long limit;
  private final AtomicLong nextAddress;
  private final long slabBytes;

  private final SpinLock lock = new SpinLock();
  private final FreeIndex free = new FreeIndex();
  private long mapped;
  private int growing;
  private long usedGranules;
  private long pendingGranules;

  /** Ascending by address. Volatile: replaced under the lock, read by everybody. */
  private volatile Slab[] slabs = new Slab[0];

  /**
   * @param limit bytes; the device's memory
   * @param nextAddress where the next slab's device addresses begin; shared by all pools that a
   *     device ever has, so that an address of an earlier context never hits a block of a later one
   */
  public DevicePool(long limit, AtomicLong nextAddress) {
    this.limit = limit & -Slab.GRANULE;
    this.nextAddress = nextAddress;
    this.slabBytes = Math.clamp(limit / 8 & -Slab.GRANULE, Slab.GRANULE, SLAB_BYTES);
  }

  /** What the device has left for everybody: neither used nor waiting for a free to run. */
  public long freeBytes() {
    lock.lock();
    try {
      return limit - ((usedGranules + pendingGranules) << Slab.GRANULE_BITS);
    } finally {
      lock.unlock();
    }
  }

  public long limitBytes() {
    return limit;
  }

  /**
   * Room for {@code bytes}, or null if there is none. Any thread; never suspends a virtual thread;
   * takes milliseconds when a slab has to be made.
   */
  public @Nullable Block allocate(StreamCache own, long bytes) {
    if (bytes > limit) {
      return null;
    }
    long granules = (bytes + Slab.GRANULE - 1) >>> Slab.GRANULE_BITS;
    while (true) {
      List<Slab> given = new ArrayList<>(0);
      long grow;
      lock.lock();
      try {
        Chunk chunk = take(own, granules);
        if (chunk != null) {
          return use(chunk, bytes);
        }
        grow = roomForSlab(granules, given);
        if (grow == 0 && growing == 0) {
          return null;
        }
      } finally {
        lock.unlock();
      }
      given.forEach(Slab::close);
      if (grow > 0) {
        return allocateInNewSlab(grow, granules, bytes);
      }
      Thread.onSpinWait(); // somebody else is making a slab, which may have room for both
    }
  }

  private @Nullable Chunk take(StreamCache own, long granules) {
    Chunk chunk = own.pending.take(granules);
    if (chunk != null) {
      takeBack(own, chunk, granules);
      return chunk;
    }
    chunk = free.take(granules);
    return chunk == null ? null : cut(chunk, granules);
  }

  /** From a chunk that nobody has any more; the rest of it is everybody's. */
  private Chunk cut(Chunk chunk, long granules) {
    long rest = chunk.granules - granules;
    if (rest == 0) {
      return chunk;
    }
    if (granules <= LOW_MAX) {
      free.insert(chunk.split(granules));
      return chunk;
    }
    Chunk high = chunk.split(rest);
    free.insert(chunk);
    return high;
  }

  /** The stream reuses what it freed; what it does not need stays pending. */
  private void takeBack(StreamCache own, Chunk chunk, long granules) {
    Block freed = requireNonNull(chunk.pendingOf, "a chunk in a stream's cache waits for a free");
    chunk.pendingOf = null;
    freed.rest = null;
    pendingGranules -= granules;
    if (chunk.granules > granules) {
      Chunk rest = chunk.split(granules);
      rest.pendingOf = freed;
      freed.rest = rest;
      own.pending.insert(rest);
    }
  }

  private Block use(Chunk chunk, long bytes) {
    Block block = new Block(chunk, bytes);
    usedGranules += chunk.granules;
    chunk.slab.map(chunk, block);
    return block;
  }

  // --- slabs ----------------------------------------------------------------------------------

  /** Reserves room for a slab and returns its bytes, or 0; may give up free slabs for it. */
  private long roomForSlab(long granules, List<Slab> given) {
    long needed = granules << Slab.GRANULE_BITS;
    if (limit - mapped < needed) {
      giveUpFreeSlabs(needed, given);
    }
    if (limit - mapped < needed) {
      return 0;
    }
    long wanted = Math.min(slabBytes, Math.max(SLAB_BYTES_FIRST, mapped));
    long bytes = Math.min(Math.max(needed, wanted), limit - mapped);
    if (limit - mapped - bytes < SLAB_BYTES_MIN) {
      bytes = limit - mapped; // a remainder that small would serve nobody
    }
    mapped += bytes;
    growing++;
    return bytes;
  }

  private void giveUpFreeSlabs(long needed, List<Slab> given) {
    long possible = limit - mapped;
    for (Slab slab : slabs) {
      possible += slab.isFree() ? slab.bytes : 0;
    }
    if (possible < needed) {
      return;
    }
    for (Slab slab : slabs) {
      if (limit - mapped < needed && slab.isFree()) {
        free.remove(slab.first);
        mapped -= slab.bytes;
        given.add(slab);
      }
    }
    List<Slab> kept = new ArrayList<>(List.of(slabs));
    kept.removeAll(given);
    slabs = kept.toArray(Slab[]::new);
  }

  private @Nullable Block allocateInNewSlab(long slabSize, long granules, long bytes) {
    Slab slab = makeSlab(slabSize);
    lock.lock();
    try {
      growing--;
      if (slab == null) {
        mapped -= slabSize;
        return null;
      }
      publish(slab);
      return use(cut(slab.first, granules), bytes);
    } finally {
      lock.unlock();
    }
  }

  /** Null if the process itself has no such memory: to the caller, the device is full. */
  @SuppressWarnings("MustBeClosedChecker") // the slab closes it
  private @Nullable Slab makeSlab(long bytes) {
    Arena arena = Arena.ofShared();
    try {
      MemorySegment memory = arena.allocate(bytes, Slab.GRANULE);
      return new Slab(nextAddress.getAndAdd(bytes + Slab.GRANULE), arena, memory);
    } catch (OutOfMemoryError e) {
      arena.close();
      return null;
    }
  }

  /** Inserts by address: slabs made at the same time may arrive in another order. */
  private void publish(Slab slab) {
    Slab[] old = slabs;
    Slab[] grown = new Slab[old.length + 1];
    int at = old.length;
    while (at > 0 && old[at - 1].base > slab.base) {
      at--;
    }
    System.arraycopy(old, 0, grown, 0, at);
    grown[at] = slab;
    System.arraycopy(old, at, grown, at + 1, old.length - at);
    slabs = grown;
  }

  // --- free -----------------------------------------------------------------------------------

  /** The call: after the stream's free was enqueued. The block's address is no longer known. */
  public void free(StreamCache own, Block block) {
    lock.lock();
    try {
      Chunk chunk = block.chunk;
      chunk.slab.unmap(chunk);
      usedGranules -= chunk.granules;
      if (block.freeRan) {
        release(chunk);
      } else {
        pendingGranules += chunk.granules;
        chunk.pendingOf = block;
        block.rest = chunk;
        own.pending.insert(chunk);
      }
    } finally {
      lock.unlock();
    }
  }

  /** The stream reached the free: what it did not reuse is everybody's. */
  public void freeRan(Block block) {
    lock.lock();
    try {
      block.freeRan = true;
      Chunk rest = block.rest;
      if (rest != null) {
        requireNonNull(rest.index, "a pending chunk is in its stream's cache").remove(rest);
        block.rest = null;
        rest.pendingOf = null;
        pendingGranules -= rest.granules;
        release(rest);
      }
    } finally {
      lock.unlock();
    }
  }

  private void release(Chunk chunk) {
    Chunk after = chunk.after;
    if (after != null && after.index == free) {
      free.remove(after);
      chunk.absorbAfter(after);
    }
    Chunk before = chunk.before;
    if (before != null && before.index == free) {
      free.remove(before);
      before.absorbAfter(chunk);
      chunk = before;
    }
    free.insert(chunk);
  }

  // --- finding --------------------------------------------------------------------------------

  /** The block that holds this device address now, in the order of the calls, or null. */
  public @Nullable Block find(long address) {
    Slab[] all = slabs;
    int low = 0;
    int high = all.length - 1;
    while (low <= high) {
      int middle = (low + high) >>> 1;
      Slab slab = all[middle];
      if (address < slab.base) {
        high = middle - 1;
      } else if (address - slab.base >= slab.bytes) {
        low = middle + 1;
      } else {
        return slab.find(address);
      }
    }
    return null;
  }

  /** One sentence for an out-of-memory message. */
  public String describe() {
    lock.lock();
    try {
      return "of "
          + limit
          + " bytes, "
          + (usedGranules << Slab.GRANULE_BITS)
          + " are in use and "
          + (pendingGranules << Slab.GRANULE_BITS)
          + " wait for their free to be reached; the largest free piece has "
          + Math.max(free.largest() << Slab.GRANULE_BITS, limit - mapped)
          + " bytes";
    } finally {
      lock.unlock();
    }
  }

  /** Gives all memory back. Whatever still touches a block afterwards fails, and harms nothing. */
  public void close() {
    Slab[] all;
    lock.lock();
    try {
      all = slabs;
      slabs = new Slab[0];
      mapped = limit;
    } finally {
      lock.unlock();
    }
    for (Slab slab : all) {
      slab.close();
    }
  }
}
