package io.fairlead.device;

import io.fairlead.device.spi.DriverCall;
import io.fairlead.fault.Mutant;
import io.fairlead.task.BriefLock;
import io.fairlead.task.Collected;
import io.fairlead.task.Completion;
import io.fairlead.task.Retired;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * A pool of page-locked host memory, for copies that run while nobody waits. Pinning costs up to a
 * millisecond per mebibyte, so what was pinned is kept, within a limit. It is pinned in regions,
 * the larger the more there is, and lent in blocks of powers of two: a free block is halved for
 * smaller ones, and put together with its other half for larger ones, before more is pinned.
 *
 * <h2>A block's life</h2>
 *
 * <pre>
 * FREE    → LENT      take
 * LENT    → FREE      close, if all uses that were told have ended
 * LENT    → PENDING   close before that
 * PENDING → LENT      take, once the mark is reached
 * FREE    → gone      a whole region is evicted for another one, or the context closes
 * LENT    → PENDING   found by the collector: reported, lent again once all work so far has ended
 * </pre>
 *
 * <p>Small blocks and large ones have regions of their own while there is room for these: a small
 * one that stays would keep a large region in pieces.
 *
 * <p>Lock order: the pool's lock is a leaf, held for a few list operations and memory reads (before
 * more is pinned or somebody waits, also for a look at all that is pending, at the pairs of free
 * halves and at the regions), never while waiting or calling the driver. Every field below it is
 * guarded by it, and so are {@link SlotLists} and the tree of {@link PinnedPiece}. The cleaner does
 * not take it.
 *
 * <p>Any thread.
 */
public final class HostBlocks {
  /** A page; smaller requests would not be cheaper. */
  private static final int CLASS_MIN = 12;

  /** There, pinning has its best speed for each byte, and takes some 20 ms. */
  private static final int REGION_CLASS_MAX = 26;

  /** Blocks below that are small. */
  private static final int LARGE_CLASS = 18;

  private static final int SMALL_REGION_CLASS_MAX = 21;

  /** A region that is larger than its block is no more than such a part of all that is pinned. */
  private static final long PART_OF_HELD = 2;

  /** … and of the limit. */
  private static final long PART_OF_LIMIT = 16;

  private final DeviceContext context;
  private final long bytesMax;
  private final BriefLock lock = new BriefLock();
  private final SlotLists small = new SlotLists();
  private final SlotLists large = new SlotLists();
  private final Set<PinnedPiece> regions = new HashSet<>();
  private final List<Completion.Source<Boolean>> waiting = new ArrayList<>();
  private long held;
  private boolean closed;

  HostBlocks(DeviceContext context, long bytesMax) {
    this.context = context;
    this.bytesMax = bytesMax;
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
        return allocate(sizeClass, search).lend(bytes, takenAt);
      }
      awaitChange(search);
    }
  }

  private void evict(Search search) {
    for (PinnedPiece victim : search.evicted) {
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
    if (bytes < 0) {
      throw new IllegalArgumentException("a host block of " + bytes + " bytes; give 0 or more");
    }
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
    Slot slot = search.found != null ? search.found : allocate(sizeClass, search);
    return slot.lend(bytes, user == null ? CallSite.here() : user);
  }

  /**
   * Whether blocks of so many bytes together were given back that the device still uses: they are
   * free once it has ended that. Asks the device how far it is; any thread; does not wait.
   */
  public boolean isPending(long bytes) {
    List<Mark> oldest;
    boolean enough;
    lock.lock();
    try {
      var _ = small.freeReached();
      var _ = large.freeReached();
      enough = small.pendingBytes() + large.pendingBytes() >= bytes;
      oldest = enough ? List.copyOf(oldestPending()) : List.of();
    } finally {
      lock.unlock();
    }
    askFor(oldest);
    return enough;
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
    final List<PinnedPiece> evicted = new ArrayList<>(0);
    @Nullable Slot found;
    boolean allocate;

    /** Of the region to pin, which is counted already. */
    int regionClass;

    final List<Mark> oldestPending = new ArrayList<>(0);
    Completion.@Nullable Source<Boolean> change;
  }

  private Search search(int sizeClass) {
    Search search = new Search();
    lock.lock();
    try {
      context.requireOpen("take a host block");
      search.found = lists(sizeClass).find(sizeClass);
      if (search.found == null) {
        makeRoom(sizeClass, search);
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

  private SlotLists lists(int sizeClass) {
    return sizeClass < LARGE_CLASS ? small : large;
  }

  private SlotLists lists(PinnedPiece piece) {
    return piece.isOfSmall ? small : large;
  }

  /**
   * Reserves room for a new region, at the cost of regions that nobody uses if need be. Where there
   * is none, small blocks and large ones may be of the others' regions.
   */
  private void makeRoom(int sizeClass, Search search) {
    long bytes = 1L << sizeClass;
    if (held + bytes <= bytesMax) {
      reserve(regionClass(sizeClass), search);
      return;
    }
    SlotLists mine = lists(sizeClass);
    SlotLists others = mine == small ? large : small;
    search.found = others.find(sizeClass);
    if (search.found == null && mine.freeReached()) {
      search.found = mine.find(sizeClass);
    }
    if (search.found != null) {
      return;
    }
    if (others.freeReached()) {
      search.found = others.find(sizeClass);
      if (search.found != null) {
        return;
      }
    }
    evict(mine, bytes, search.evicted);
    evict(others, bytes, search.evicted);
    if (held + bytes <= bytesMax) {
      reserve(sizeClass, search);
    } // else what was evicted makes room for whoever comes next
  }

  private void reserve(int regionClass, Search search) {
    held += 1L << regionClass;
    search.regionClass = regionClass;
    search.allocate = true;
  }

  /** Regions of which nothing is in use, the largest first, until there is room for that. */
  private void evict(SlotLists lists, long bytes, List<PinnedPiece> evicted) {
    lists.putTogether();
    for (PinnedPiece region : freeRegions(lists)) {
      if (held + bytes <= bytesMax) {
        return;
      }
      lists.takeOut(region);
      held -= region.memory.byteSize();
      regions.remove(region);
      evicted.add(region);
    }
  }

  private List<PinnedPiece> freeRegions(SlotLists lists) {
    return regions.stream()
        .filter(region -> lists(region) == lists && region.isFree())
        .sorted(Comparator.comparingInt((PinnedPiece region) -> region.sizeClass).reversed())
        .toList();
  }

  /** As large as is worth while; at least the block itself. */
  private int regionClass(int sizeClass) {
    int most = sizeClass < LARGE_CLASS ? SMALL_REGION_CLASS_MAX : REGION_CLASS_MAX;
    long part = Math.min(held / PART_OF_HELD, bytesMax / PART_OF_LIMIT);
    long bytes = Math.min(Math.min(part, bytesMax - held), 1L << most);
    return Math.max(sizeClass, 63 - Long.numberOfLeadingZeros(Math.max(1, bytes)));
  }

  /** What is reached first on each stream that uses a block: one of them comes first of all. */
  private Collection<Mark> oldestPending() {
    Map<DeviceStream, Mark> oldest = new HashMap<>();
    small.addOldestPending(oldest);
    large.addOldestPending(oldest);
    return oldest.values();
  }

  /** Pins a region; what is not lent of it is free. */
  private Slot allocate(int sizeClass, Search search) {
    PinnedPiece region = pin(sizeClass, search.regionClass);
    boolean somebodyWaits;
    Slot slot;
    lock.lock();
    try {
      regions.add(region);
      slot = lists(sizeClass).lend(new Slot(region), sizeClass);
      somebodyWaits = region.sizeClass > sizeClass && !waiting.isEmpty();
    } finally {
      lock.unlock();
    }
    if (somebodyWaits) {
      wakeAll();
    }
    return slot;
  }

  private PinnedPiece pin(int sizeClass, int regionClass) {
    long bytes = 1L << regionClass;
    try {
      MemorySegment memory =
          context.driverCall(
              DriverCall.HOST_ALLOC,
              "pin " + bytes + " bytes of host memory",
              () -> context.driver().hostAlloc(context.nativeContext(), bytes));
      return new PinnedPiece(this, memory, regionClass, lists(sizeClass) == small);
    } catch (RuntimeException e) {
      if (regionClass == sizeClass) {
        unreserve(bytes);
        throw e;
      }
    }
    unreserve(bytes - (1L << sizeClass)); // perhaps there is room for the block alone
    return pin(sizeClass, sizeClass);
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
      if (closed) {
        return; // its memory is gone
      }
      slot.after = reached ? null : after;
      SlotLists lists = lists(slot.piece);
      if (reached) {
        lists.addFree(slot);
      } else {
        lists.addPending(slot);
      }
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
    List<PinnedPiece> left;
    lock.lock();
    try {
      left = List.copyOf(regions);
      regions.clear();
      closed = true;
      held = 0;
      small.clear();
      large.clear();
      left.forEach(region -> region.eachPiece(PinnedPiece::lend)); // no slot is reached from there
    } finally {
      lock.unlock();
    }
    for (PinnedPiece region : left) {
      region.eachPiece(this::reportLent);
      free(region);
    }
    wakeAll();
  }

  private void reportLent(PinnedPiece piece) {
    String takenAt = piece.takenAt;
    if (takenAt != null) {
      piece.takenAt = null;
      context.reportLeak(piece.toString(), takenAt);
    }
  }

  private void free(PinnedPiece region) {
    context.quietly(
        DriverCall.HOST_FREE,
        "free " + region,
        () -> context.driver().hostFree(context.nativeContext(), region.memory));
  }

  /** By the cleaner: nobody can close this block any more. */
  void dropped(PinnedPiece piece, String lentAt) {
    context.owner().retire(new Lost(piece, lentAt));
  }

  /**
   * A block's handle in the pool. While it is lent only the lender's {@link HostBlock} refers to
   * it, so the collector finds a block that was dropped, at no cost for each take.
   */
  static final class Slot {
    final PinnedPiece piece;

    /** What must be reached before it is lent again; guarded by the pool's lock. */
    @Nullable Mark after;

    /** In the list that it is in; guarded by the pool's lock. */
    @Nullable Slot before;

    @Nullable Slot behind;

    Slot(PinnedPiece piece) {
      this.piece = piece;
      PinnedPiece core = piece;
      Collected.register(this, core::dropped);
    }

    MemorySegment memory() {
      return piece.memory;
    }

    private HostBlock lend(long bytes, String takenAt) {
      piece.takenAt = takenAt;
      return new HostBlock(this, bytes);
    }

    boolean isReached() {
      Mark mark = after;
      return mark == null || piece.pool.isEnded(mark);
    }

    boolean isUnused(List<Mark> marks) {
      for (Mark mark : marks) {
        if (!piece.pool.isEnded(mark)) {
          return false;
        }
      }
      return true;
    }

    /**
     * After these marks; each on another stream. One of them alone is looked at again by whoever
     * takes the next block, unless the driver no longer knows its stream.
     */
    void giveBack(List<Mark> marks) {
      piece.takenAt = null;
      HostBlocks pool = piece.pool;
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

  /** A region that was evicted. */
  private static final class Free extends Retired {
    private final PinnedPiece region;

    Free(PinnedPiece region) {
      this.region = region;
    }

    @Override
    protected void release() {
      region.pool.free(region);
    }
  }

  /** A block whose holder was collected. */
  private static final class Lost extends Retired {
    private final PinnedPiece piece;
    private final String takenAt;

    Lost(PinnedPiece piece, String takenAt) {
      this.piece = piece;
      this.takenAt = takenAt;
    }

    @Override
    protected void release() {
      DeviceContext context = piece.pool.context;
      context.reportLeak(piece.toString(), takenAt);
      // a copy may still use it: nobody knows up to where, so up to everything
      context.afterAllWork(() -> new Slot(piece).giveBack(List.of()));
    }
  }
}
