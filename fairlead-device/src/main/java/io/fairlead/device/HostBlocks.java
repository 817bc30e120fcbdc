package io.fairlead.device;

import io.fairlead.device.spi.DriverCall;
import io.fairlead.fault.Mutant;
import io.fairlead.task.BriefLock;
import io.fairlead.task.Collected;
import io.fairlead.task.Completion;
import io.fairlead.task.Retired;
import java.lang.foreign.MemorySegment;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * A pool of page-locked host memory, for copies that run while nobody waits. Pinning costs about a
 * millisecond per mebibyte, so blocks are kept: in classes of powers of two, and within a limit.
 *
 * <h2>A block's life</h2>
 *
 * <pre>
 * FREE    → LENT      take
 * LENT    → FREE      close, if all uses that were told have ended
 * LENT    → PENDING   close before that
 * PENDING → LENT      take, once the mark is reached
 * FREE    → gone      evicted for a block of another size, or the context closes
 * LENT    → PENDING   found by the collector: reported, lent again once all work so far has ended
 * </pre>
 *
 * <p>Lock order: the pool's lock is a leaf, held for a few list operations and memory reads, never
 * while waiting or calling the driver. Every field below it is guarded by it. The cleaner does not
 * take it.
 *
 * <p>Any thread.
 */
public final class HostBlocks {
  /** A page; smaller requests would not be cheaper. */
  private static final int CLASS_MIN = 12;

  private static final int CLASSES = 64;

  private final DeviceContext context;
  private final long bytesMax;
  private final BriefLock lock = new BriefLock();
  private final List<ArrayDeque<Slot>> free = new ArrayList<>(CLASSES);
  private final List<ArrayDeque<Slot>> pending = new ArrayList<>(CLASSES);
  private final Set<Pinned> all = new HashSet<>();
  private final List<Completion.Source<Boolean>> waiting = new ArrayList<>();
  private long held;

  HostBlocks(DeviceContext context, long bytesMax) {
    this.context = context;
    this.bytesMax = bytesMax;
    for (int i = 0; i < CLASSES; i++) {
      free.add(new ArrayDeque<>());
      pending.add(new ArrayDeque<>());
    }
  }

  /**
   * A block of at least that size; its segment has exactly that size. Parks the task while the
   * limit is reached and blocks are in use; deadline and cancellation of the task end that.
   *
   * @throws IllegalArgumentException if the limit can never hold it
   * @throws DeviceException if the driver cannot pin more
   */
  public HostBlock take(long bytes) {
    int sizeClass = classOf(bytes);
    String takenAt = CallSite.here();
    while (true) {
      Search search = search(sizeClass);
      evict(search);
      if (search.found != null) {
        return search.found.lend(bytes, takenAt);
      }
      if (search.allocate) {
        return allocate(sizeClass).lend(bytes, takenAt);
      }
      awaitChange(search);
    }
  }

  private void evict(Search search) {
    for (Pinned victim : search.evicted) {
      context.owner().retire(new Free(victim));
    }
  }

  /**
   * As {@link #take}, if that need not wait for others to give blocks back; else null, and the same
   * may succeed later: when others have, or the device has ended what it does with blocks. The
   * driver may still take its time to pin a new one.
   */
  public @Nullable HostBlock tryTake(long bytes) {
    return tryTake(bytes, null);
  }

  /**
   * As the other {@code tryTake}.
   *
   * @param user as reports of what was not given back name it; null: the place that this is called
   *     from, which takes longer to find than a block that is free
   */
  public @Nullable HostBlock tryTake(long bytes, @Nullable String user) {
    if (bytes > bytesMax || 1L << sizeClass(bytes) > bytesMax) {
      return null;
    }
    int sizeClass = sizeClass(bytes);
    Search search = search(sizeClass);
    evict(search);
    if (search.found == null && !search.allocate) {
      forget(search);
      askFor(search.oldestPending);
      return null;
    }
    Slot slot = search.found != null ? search.found : allocate(sizeClass);
    return slot.lend(bytes, user == null ? CallSite.here() : user);
  }

  /** So that the end of these uses is known when it comes, and a later try finds it. */
  private static void askFor(List<Mark> uses) {
    if (!Mutant.on("staging.ask.skip")) {
      uses.forEach(HostBlocks::endOf);
    }
  }

  private void forget(Search search) {
    lock.lock();
    try {
      waiting.remove(search.change);
    } finally {
      lock.unlock();
    }
  }

  /** Bytes that the pool holds, in use or not. */
  public long bytesHeld() {
    lock.lock();
    try {
      return held;
    } finally {
      lock.unlock();
    }
  }

  private int classOf(long bytes) {
    if (bytes < 0 || bytes > bytesMax) {
      throw new IllegalArgumentException(
          "a host block of "
              + bytes
              + " bytes does not fit the pool's limit of "
              + bytesMax
              + "; take smaller blocks, or raise hostBytesMax");
    }
    int sizeClass = sizeClass(bytes);
    if (1L << sizeClass > bytesMax) {
      throw new IllegalArgumentException(
          "a host block of "
              + bytes
              + " bytes takes "
              + (1L << sizeClass)
              + " of the pool's limit of "
              + bytesMax
              + "; take smaller blocks, or raise hostBytesMax");
    }
    return sizeClass;
  }

  private static int sizeClass(long bytes) {
    return Math.max(CLASS_MIN, 64 - Long.numberOfLeadingZeros(Math.max(1, bytes - 1)));
  }

  /** What one look under the lock found: a block, room for one, or whom to wait for. */
  private static final class Search {
    final List<Pinned> evicted = new ArrayList<>(0);
    @Nullable Slot found;
    boolean allocate;
    final List<Mark> oldestPending = new ArrayList<>(0);
    Completion.@Nullable Source<Boolean> change;
  }

  private Search search(int sizeClass) {
    Search search = new Search();
    lock.lock();
    try {
      context.requireOpen("take a host block");
      search.found = reuse(sizeClass);
      if (search.found == null) {
        search.allocate = makeRoom(1L << sizeClass, search.evicted);
        if (!search.allocate && freeReached()) {
          search.found = reuse(sizeClass);
          search.allocate = search.found == null && makeRoom(1L << sizeClass, search.evicted);
        }
        if (search.found == null && !search.allocate) {
          search.oldestPending.addAll(oldestPending());
          search.change = Completion.source();
          waiting.add(search.change);
        }
      }
      return search;
    } finally {
      lock.unlock();
    }
  }

  private @Nullable Slot reuse(int sizeClass) {
    Slot slot = free.get(sizeClass).pollLast(); // the one used last is warmest
    if (slot != null) {
      return slot;
    }
    Slot oldest = pending.get(sizeClass).peek();
    return oldest != null && oldest.isReached() ? pending.get(sizeClass).poll() : null;
  }

  /** Reserves room for a new block, at the cost of free blocks of other sizes if need be. */
  private boolean makeRoom(long bytes, List<Pinned> evicted) {
    for (int each = CLASSES - 1; each >= CLASS_MIN && held + bytes > bytesMax; each--) {
      for (Slot slot = reuse(each); slot != null; slot = reuse(each)) {
        held -= slot.pinned.memory.byteSize();
        all.remove(slot.pinned);
        evicted.add(slot.pinned);
        if (held + bytes <= bytesMax) {
          break;
        }
      }
    }
    if (held + bytes > bytesMax) {
      return false; // what was evicted makes room for whoever comes next
    }
    held += bytes;
    return true;
  }

  /**
   * Looks behind the oldest too: streams are not equally fast, and one that is held up must not
   * keep the blocks of the others. Only before somebody would wait, since it looks at all.
   */
  private boolean freeReached() {
    boolean found = false;
    for (ArrayDeque<Slot> each : pending) {
      for (Iterator<Slot> slots = each.iterator(); slots.hasNext(); ) {
        Slot slot = slots.next();
        if (slot.isReached()) {
          slots.remove();
          slot.after = null;
          free.get(slot.pinned.sizeClass).add(slot);
          found = true;
        }
      }
    }
    return found;
  }

  /** What is reached first on each stream that uses a block: one of them comes first of all. */
  private Collection<Mark> oldestPending() {
    Map<DeviceStream, Mark> oldest = new HashMap<>();
    for (ArrayDeque<Slot> each : pending) {
      for (Slot slot : each) {
        Mark mark = slot.after;
        if (mark != null) {
          oldest.merge(mark.stream(), mark, HostBlocks::earlier);
        }
      }
    }
    return oldest.values();
  }

  private static Mark earlier(Mark one, Mark other) {
    return one.sequence() <= other.sequence() ? one : other;
  }

  private Slot allocate(int sizeClass) {
    long bytes = 1L << sizeClass;
    MemorySegment memory;
    try {
      memory =
          context.driverCall(
              DriverCall.HOST_ALLOC,
              "pin " + bytes + " bytes of host memory",
              () -> context.driver().hostAlloc(context.nativeContext(), bytes));
    } catch (RuntimeException e) {
      unreserve(bytes);
      throw e;
    }
    Pinned pinned = new Pinned(this, memory, sizeClass);
    remember(pinned);
    return new Slot(pinned);
  }

  private void unreserve(long bytes) {
    lock.lock();
    try {
      held -= bytes;
    } finally {
      lock.unlock();
    }
    wakeAll();
  }

  private void remember(Pinned pinned) {
    lock.lock();
    try {
      all.add(pinned);
    } finally {
      lock.unlock();
    }
  }

  private void awaitChange(Search search) {
    Completion.Source<Boolean> change = search.change;
    for (Mark oldest : search.oldestPending) {
      endOf(oldest).onDone(end -> wakeIfReached(oldest, end));
    }
    if (change != null) {
      change.completion().await();
    }
  }

  private void wakeIfReached(Mark mark, Completion<Void> reached) {
    Throwable cause = reached.cause();
    if (cause == null || isOver(mark)) {
      wakeAll();
    } else {
      takeWaiting().forEach(waiter -> waiter.fail(cause));
    }
  }

  private void wakeAll() {
    takeWaiting().forEach(waiter -> waiter.complete(true));
  }

  private List<Completion.Source<Boolean>> takeWaiting() {
    lock.lock();
    try {
      List<Completion.Source<Boolean>> taken = List.copyOf(waiting);
      waiting.clear();
      return taken;
    } finally {
      lock.unlock();
    }
  }

  /**
   * Whether nothing touches a block any more because of the mark. False if the driver no longer
   * knows the stream; see {@link Slot#giveBack}.
   */
  private boolean isEnded(Mark mark) {
    if (Mutant.on("hostblocks.recycle.early")) {
      return true;
    }
    return isOver(mark) || mark.stream().core().isReachedIfKnown(mark.sequence());
  }

  /** Whether the user is another device, which is lost: its work neither goes on nor ends. */
  private boolean isOver(Mark mark) {
    DeviceContext user = mark.stream().context();
    return user != context && user.isLost();
  }

  private static Completion<Void> endOf(Mark mark) {
    return DeviceContext.endOf(mark.stream().core(), mark.sequence());
  }

  private void giveBack(Slot slot, @Nullable Mark after) {
    boolean reached = after == null || isEnded(after);
    boolean somebodyWaits;
    lock.lock();
    try {
      slot.after = reached ? null : after;
      (reached ? free : pending).get(slot.pinned.sizeClass).add(slot);
      somebodyWaits = !waiting.isEmpty();
    } finally {
      lock.unlock();
    }
    if (!somebodyWaits) {
      return;
    }
    if (reached || after == null) {
      wakeAll();
    } else {
      endOf(after).onDone(end -> wakeIfReached(after, end));
    }
  }

  /** Frees every block, lent ones too. Owner only, after all work has ended. */
  void close() {
    List<Pinned> left;
    lock.lock();
    try {
      left = List.copyOf(all);
      all.clear();
      held = 0;
      free.forEach(ArrayDeque::clear);
      pending.forEach(ArrayDeque::clear);
    } finally {
      lock.unlock();
    }
    for (Pinned pinned : left) {
      String takenAt = pinned.takenAt;
      if (takenAt != null) {
        context.reportLeak(pinned.toString(), takenAt);
      }
      pinned.free();
    }
    wakeAll();
  }

  /** A native block, as the pool keeps account of it; does not keep a lent slot alive. */
  private static final class Pinned {
    final HostBlocks pool;
    final MemorySegment memory;
    final int sizeClass;

    /** Where it was taken, while it is lent; volatile: the cleaner and the owner read it. */
    volatile @Nullable String takenAt;

    Pinned(HostBlocks pool, MemorySegment memory, int sizeClass) {
      this.pool = pool;
      this.memory = memory;
      this.sizeClass = sizeClass;
    }

    void free() {
      takenAt = null;
      pool.context.quietly(
          DriverCall.HOST_FREE,
          "free " + this,
          () -> pool.context.driver().hostFree(pool.context.nativeContext(), memory));
    }

    /** The slot was collected: if it was lent, nobody can close it any more. The cleaner. */
    void dropped() {
      String lentAt = takenAt;
      if (lentAt != null) {
        pool.context.owner().retire(new Lost(this, lentAt));
      }
    }

    @Override
    public String toString() {
      return "host block of " + memory.byteSize() + " bytes";
    }
  }

  /**
   * A block's handle in the pool. While it is lent only the lender's {@link HostBlock} refers to
   * it, so the collector finds a block that was dropped, at no cost for each take.
   */
  static final class Slot {
    private final Pinned pinned;

    /** What must be reached before it is lent again; guarded by the pool's lock. */
    private @Nullable Mark after;

    private Slot(Pinned pinned) {
      this.pinned = pinned;
      Pinned core = pinned;
      Collected.register(this, core::dropped);
    }

    MemorySegment memory() {
      return pinned.memory;
    }

    private HostBlock lend(long bytes, String takenAt) {
      after = null;
      pinned.takenAt = takenAt;
      return new HostBlock(this, bytes);
    }

    private boolean isReached() {
      Mark mark = after;
      return mark == null || pinned.pool.isEnded(mark);
    }

    /**
     * After these marks; each on another stream. One of them alone is looked at again by whoever
     * takes the next block, unless the driver no longer knows its stream.
     */
    void giveBack(List<Mark> marks) {
      pinned.takenAt = null;
      HostBlocks pool = pinned.pool;
      Mark only = marks.size() == 1 ? marks.getFirst() : null;
      if (marks.isEmpty() || (only != null && isKnown(only))) {
        pool.giveBack(this, only); // as nearly all are
        return;
      }
      List<Mark> left = marks.stream().filter(each -> !pool.isEnded(each)).toList();
      if (left.isEmpty()) {
        pool.giveBack(this, null);
      } else if (left.size() == 1 && isKnown(left.getFirst())) {
        pool.giveBack(this, left.getFirst()); // the others have ended
      } else {
        List<Completion<Void>> ends = left.stream().map(HostBlocks::endOf).toList();
        Completion.all(ends)
            .onDone(
                ended -> {
                  if (ended.state() == Completion.State.DONE) {
                    pool.giveBack(this, null);
                  } else {
                    // a copy may go on; or the context is lost, and its blocks go with it
                    pool.context.afterWork(left, () -> pool.giveBack(this, null));
                  }
                });
      }
    }

    private static boolean isKnown(Mark mark) {
      try {
        mark.stream().isReached(mark);
        return true;
      } catch (DeviceException unknown) {
        return false;
      }
    }
  }

  /** A block that was evicted. */
  private static final class Free extends Retired {
    private final Pinned pinned;

    Free(Pinned pinned) {
      this.pinned = pinned;
    }

    @Override
    protected void release() {
      pinned.free();
    }
  }

  /** A block whose holder was collected. */
  private static final class Lost extends Retired {
    private final Pinned pinned;
    private final String takenAt;

    Lost(Pinned pinned, String takenAt) {
      this.pinned = pinned;
      this.takenAt = takenAt;
    }

    @Override
    protected void release() {
      DeviceContext context = pinned.pool.context;
      context.reportLeak(pinned.toString(), takenAt);
      // a copy may still use it: nobody knows up to where, so up to everything
      context.afterAllWork(() -> new Slot(pinned).giveBack(List.of()));
    }
  }
}
