package io.fairlead.memory;

import io.fairlead.device.DeviceContext;
import io.fairlead.device.DeviceException;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.Mark;
import io.fairlead.device.OutOfDeviceMemoryException;
import io.fairlead.fault.Mutant;
import io.fairlead.task.Completion;
import io.fairlead.task.Role;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.Iterator;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.atomic.AtomicReferenceArray;
import java.util.concurrent.atomic.LongAdder;
import org.jspecify.annotations.Nullable;

/**
 * Keeps the memory of closed buffers for the next buffer of the same size, with its
 * <i>frontier</i>: up to where it was used. It is no operation of a stream, at either end.
 *
 * <h2>A block</h2>
 *
 * <pre>
 * in use --closed--> RESTING --every use has ended--> READY --cache full, or room needed--> driver
 *    ^                  |                               |
 *    \------------------+-------------------------------/
 *      by a stream that    by anybody
 *      comes after it
 * </pre>
 *
 * The next storage begins with the frontier of the last one, as if it had been the same all along.
 * So whoever takes a block too early would only make an edge with its first use; which block is
 * taken decides how much is waited for, never what is right. That is why {@link #reuseUnfinished}
 * may take any, where the alternative is to wait.
 *
 * <h2>What counts</h2>
 *
 * While it rests, a block takes its bytes from the limit, as any free that the device has not
 * reached; reuse takes over the charge. Once READY it takes nothing, but the driver does not have
 * it either: before the driver is asked for more, as many READY blocks go back as are above the
 * limit.
 *
 * <p>What is kept is in the way of what is not of its size: the driver cannot put it together with
 * the free memory beside it. So where memory is scarce, a request that finds no block of its size
 * has most of what is kept returned, besides being served: what is kept is not what is asked for
 * then. Programs that ask for the same sizes again find their blocks, and nothing is returned.
 *
 * <pre>
 * invariant, for what the driver has given:  held = live + resting + ready + leaving &lt;= limit
 * </pre>
 *
 * <h2>Sizes</h2>
 *
 * A block serves requests of exactly its own size, in steps of 256 bytes: nothing is wasted inside
 * blocks, and the limit stays exact. Programs ask for few sizes, again and again; what they ask for
 * once is the driver's to split and merge.
 *
 * <h2>Threads</h2>
 *
 * Lock-free, but for the bins of large blocks, which come and go. The owner returns blocks to the
 * driver, on a stream of its own that has nothing else to do, so that no task is held up by it.
 *
 * <pre>
 * field    | writer     | reader | mode
 * small    | any        | any    | slots, set once
 * large    | any        | any    | concurrent map; a bin leaves it only while it is empty
 * ready    | any        | any    | atomic; raised before a block can be found READY, lowered after
 *          |            |        | it was taken: for a moment too high, and never too low
 * held     | any        | any    | atomic; raised before the driver is asked
 * age      | any        | owner  | plain: a lost update makes two blocks of one age
 * trimming | any        | any    | compare-and-set: the owner has a trim before it
 * merging  | any        | any    | compare-and-set: of who trims since memory is scarce
 * closing  | close()    | any    | volatile; who gives back looks again after its block rests
 * exit     | the owner  | same   | {@link Exit}
 * left     | the owner  | any    | volatile: what was returned last has left
 * </pre>
 */
final class FrontierPool implements Pool {
  /** Sizes up to here have a bin for ever: 4097 of them, when all are used. */
  private static final long SMALL_MAX = 1L << 20;

  /** Blocks that a request looks at, from the newest on: its own stream's are among them. */
  private static final int NEWEST = 8;

  /** And from the oldest on: what has ended is among them. */
  private static final int OLDEST = 4;

  /** Memory is scarce while less than this part of the limit is unused, or kept. */
  private static final int SCARCE_PART = 4;

  /** The part of it that may be kept then, as traces that fill a device say (decision 0018). */
  private static final int KEPT_PART = 16;

  /** How long a request waits for that at most; mostly it is microseconds of owner and device. */
  private static final long RETURN_NANOS = 20_000_000;

  private static final Completion<@Nullable Void> NOTHING = Completion.completed(null);

  private final DeviceContext context;
  private final Budget budget;
  private final Reclaimer reclaimer;
  private final DriverPool below;
  private final long limit;
  private final long readyMax;
  private final long waitNanos;
  private final AtomicReferenceArray<@Nullable Bin> small =
      new AtomicReferenceArray<>((int) (SMALL_MAX / Sizes.GRANULE) + 1);
  private final ConcurrentHashMap<Long, Bin> large = new ConcurrentHashMap<>();
  private final AtomicLong ready = new AtomicLong();
  private final AtomicLong held = new AtomicLong();
  private final LongAdder reused = new LongAdder();
  private final LongAdder trimsAwaited = new LongAdder();
  private final AtomicBoolean trimming = new AtomicBoolean();
  private final AtomicBoolean merging = new AtomicBoolean();
  private long age;
  private volatile boolean closing;
  private final Exit exit;
  private volatile Completion<@Nullable Void> left = NOTHING;

  FrontierPool(
      DeviceContext context,
      Budget budget,
      Reclaimer reclaimer,
      DriverPool below,
      long readyMax,
      long waitNanos) {
    this.context = context;
    this.exit = new Exit(context);
    this.budget = budget;
    this.reclaimer = reclaimer;
    this.below = below;
    this.limit = budget.limit();
    this.readyMax = readyMax;
    this.waitNanos = waitNanos;
  }

  // --- handing out --------------------------------------------------------------------------

  @Override
  public @Nullable Block reuse(DeviceStream stream, Account account, long bytes) {
    Bin bin = stream.isCaptured() ? null : bin(bytes);
    Resting found = bin == null ? null : bin.take(stream);
    return found == null ? null : pay(found, account);
  }

  @Override
  public @Nullable Block reuseUnfinished(DeviceStream stream, Account account, long bytes) {
    Bin bin = stream.isCaptured() ? null : bin(bytes);
    Resting found = bin == null ? null : bin.takeOldest();
    return found == null ? null : pay(found, account);
  }

  private @Nullable Block pay(Resting found, Account account) {
    Charge charge =
        found.wasReady
            ? budget.tryCharge(account, found.charge.bytes)
            : budget.renew(account, found.charge);
    if (charge == null) {
      putBack(found);
      return null;
    }
    return found.reuse(charge);
  }

  private void putBack(Resting found) {
    rest(found.again());
  }

  @Override
  public Block allocate(DeviceStream stream, long bytes, Charge charge) {
    if (stream.isCaptured()) {
      return below.allocateNow(stream, bytes, charge); // which says why not
    }
    Bin bin = bin(charge.bytes);
    Resting found = bin == null ? null : bin.take(stream);
    if (found == null) {
      return allocateBelow(stream, charge);
    }
    if (!found.wasReady) {
      budget.release(found.charge);
    }
    return found.reuse(charge);
  }

  private Block allocateBelow(DeviceStream stream, Charge charge) {
    if (isMuchKept()) {
      reclaimer.sweep();
      // What has come since, or is seen only now to be unused, may be of just that size. Else it
      // would be returned, be waited for, and be asked for again.
      Bin bin = Mutant.on("pool.scarce.blind") ? null : bin(charge.bytes);
      Resting found = bin == null ? null : bin.takeReady();
      if (found != null) {
        return found.reuse(charge);
      }
    }
    trimIfScarce();
    makeRoom(charge.bytes);
    try {
      return ask(stream, charge);
    } catch (RuntimeException | Error refused) {
      held.addAndGet(-charge.bytes);
      throw refused;
    }
  }

  /** Others may have taken of the device what the limit lets us have: then the cache goes first. */
  private Block ask(DeviceStream stream, Charge charge) {
    try {
      return below.allocateNow(stream, charge.bytes, charge);
    } catch (OutOfDeviceMemoryException refused) {
      reclaimer.sweep();
      if (ready.get() > 0) {
        try {
          Waiting.hasCome(trim(Long.MAX_VALUE), System.nanoTime() + waitNanos);
        } catch (DeviceException kept) {
          refused.addSuppressed(kept); // of some; the others may be enough
        }
      } else if (budget.pendingFree() == 0) {
        throw refused;
      }
      return below.allocate(stream, charge.bytes, charge);
    }
  }

  /** Takes bytes of {@code held}, once READY blocks have made room for them. */
  @SuppressWarnings("ThreadPriorityCheck") // who has taken a block may need this carrier
  private void makeRoom(long bytes) {
    long deadline = System.nanoTime() + waitNanos;
    while (true) {
      long now = held.get();
      if (now + bytes <= limit) {
        if (held.compareAndSet(now, now + bytes)) {
          return;
        }
        continue;
      }
      reclaimer.sweep();
      Completion<@Nullable Void> room = ready.get() > 0 ? trim(now + bytes - limit) : left;
      if (!Role.current().mayWait()) {
        held.addAndGet(bytes); // for the moment that it takes the device to let go
        return;
      }
      try {
        if (!Waiting.hasCome(room, deadline)) {
          throw new OutOfDeviceMemoryException(
              "unused memory was not let go in time", "allocate", context.ordinal(), null);
        }
      } catch (DeviceException refused) {
        if (held.get() + bytes > limit) {
          throw refused; // what was let go besides is not enough
        }
      }
      Thread.yield(); // a block may be on its way, with whoever has taken it and waits to go on
    }
  }

  private @Nullable Bin bin(long bytes) {
    return bytes <= SMALL_MAX ? small.get((int) (bytes / Sizes.GRANULE)) : large.get(bytes);
  }

  // --- taking back --------------------------------------------------------------------------

  @Override
  public boolean giveBack(Storage storage, Charge charge) {
    if (context.isLost()) {
      budget.cancel(charge); // the memory ended with its context
    } else if (closing || charge.bytes > readyMax) {
      return returnNow(storage, charge);
    } else {
      keep(storage, charge);
    }
    return true;
  }

  private void keep(Storage storage, Charge charge) {
    Frontier uses = Mutant.on("pool.frontier.skip") ? Frontier.NONE : storage.lastUses();
    Resting block = new Resting(this, storage.address, uses, charge);
    if (uses == Frontier.NONE) {
      rest(block); // before its bytes are free: whoever gets them finds it
      budget.cancel(charge);
    } else {
      budget.closing(charge);
      rest(block);
    }
    if (closing) {
      context.owner().retire(new Order(this::returnAllAndExit));
    } else if (context.isLost()) {
      abandon();
    }
  }

  private boolean returnNow(Storage storage, Charge charge) {
    Mark freed;
    try {
      freed = below.free(storage);
    } catch (DeviceException refused) {
      if (context.isLost()) {
        throw refused;
      }
      keep(storage, charge); // whoever looks at what is kept next tries again
      return true;
    }
    budget.closing(charge);
    if (freed == null) {
      return false;
    }
    reclaimer.add(new Leaving(this, new Frontier(freed, List.of()), charge));
    return true;
  }

  private void rest(Resting block) {
    if (shelve(block)) {
      trimIfFull();
    }
  }

  /** Whether it is READY from the beginning. */
  private boolean shelve(Resting block) {
    boolean isReady = block.isReleased();
    if (isReady) {
      ready.addAndGet(block.charge.bytes);
    }
    put(block);
    if (!isReady) {
      reclaimer.add(block);
    }
    return isReady;
  }

  private void put(Resting block) {
    long bytes = block.charge.bytes;
    if (bytes > SMALL_MAX) {
      // inside, so that the bin is not taken out of the map meanwhile
      large.compute(
          bytes,
          (size, known) -> {
            Bin bin = known == null ? new Bin() : known;
            bin.add(block);
            return bin;
          });
      return;
    }
    int index = (int) (bytes / Sizes.GRANULE);
    Bin bin = small.get(index);
    if (bin == null) {
      Bin made = new Bin();
      bin = small.compareAndSet(index, null, made) ? made : small.get(index);
    }
    Objects.requireNonNull(bin, "a bin is never taken away").add(block);
  }

  /** On the device's threads too, so it only asks the owner. */
  private void trimIfFull() {
    if (ready.get() > readyMax && trimming.compareAndSet(false, true)) {
      context.owner().retire(new Order(this::trimToMax));
    }
  }

  /** To seven eighths, so that it is not done again for the next block. */
  private void trimToMax() {
    trimming.set(false);
    returnReady(ready.get() - readyMax + readyMax / 8);
  }

  /**
   * To half of what may be kept, so that it is not done again for the next request. Who begins it
   * waits for it for a moment, which mostly is enough: else the request, and those after it, would
   * go to the pieces between what is returned.
   */
  private void trimIfScarce() {
    long surplus = surplus();
    if (surplus > 0 && Role.current().mayWait() && merging.compareAndSet(false, true)) {
      trimsAwaited.increment();
      try {
        long most = Math.min(waitNanos, RETURN_NANOS);
        var _ = Waiting.hasCome(trim(surplus + keptMax() / 2), System.nanoTime() + most);
      } catch (DeviceException refused) {
        // of some: they are kept, and whoever lacks their room asks again
      } finally {
        merging.set(false);
      }
    }
  }

  /** Also what may be unused by now, and is not known to be. */
  private boolean isMuchKept() {
    return ready.get() + budget.pendingFree() > keptMax();
  }

  /** How often a request has waited for what is kept to be returned; for tests. */
  long trimsAwaited() {
    return trimsAwaited.sum();
  }

  /** Bytes of READY blocks above what may be kept; for a moment it may be wrong either way. */
  private long surplus() {
    long kept = ready.get();
    return kept == 0 ? 0 : kept - keptMax();
  }

  private long keptMax() {
    long unused = limit - held.get() + ready.get();
    return unused >= limit / SCARCE_PART ? readyMax : Math.min(readyMax, unused / KEPT_PART);
  }

  // --- back to the driver -------------------------------------------------------------------

  @Override
  public Completion<@Nullable Void> trim(long bytes) {
    if (context.owner().isOwnerThread()) {
      returnReady(bytes);
      return left;
    }
    Completion.Source<@Nullable Void> gone = Completion.source();
    if (!context.owner().retire(new Order(() -> trim(bytes, gone)))) {
      gone.complete(null); // all of it has ended with the context
    }
    return gone.completion();
  }

  /** Told also of a refusal, after what was not refused has left. */
  private void trim(long bytes, Completion.Source<@Nullable Void> gone) {
    try {
      returnReady(bytes);
      left.onDone(_ -> gone.complete(null));
    } catch (RuntimeException | Error refused) {
      left.onDone(_ -> gone.fail(refused));
      throw refused;
    }
  }

  /** Owner only. The oldest first. */
  private void returnReady(long bytes) {
    if (bytes <= 0 || ready.get() == 0) {
      return;
    }
    Departure departure = new Departure(exit.stream());
    for (Resting block : allBlocks()) {
      if (departure.bytes < bytes && block.takeReady()) {
        departure.add(block);
      }
    }
    departure.leave();
  }

  /** Owner only: also what is still used, behind its uses. */
  private @Nullable Void returnAll() {
    List<Resting> all = allBlocks();
    if (!all.isEmpty()) {
      Departure departure = new Departure(exit.stream());
      for (Resting block : all) {
        if (block.takeUnreached() || block.takeReady()) {
          departure.add(block);
        }
      }
      departure.leave();
    }
    return null;
  }

  /** Blocks that leave together. Owner only. */
  private final class Departure {
    private final DeviceStream stream;
    private long bytes;
    private @Nullable Throwable refusal;

    Departure(DeviceStream stream) {
      this.stream = stream;
    }

    /** Of a block that was taken. What is refused stays: the driver has not had it back. */
    void add(Resting block) {
      unlink(block);
      try {
        below.free(stream, block.address, block.uses());
      } catch (RuntimeException | Error refused) {
        if (refusal == null) {
          refusal = refused;
        }
        shelve(block.again());
        return;
      }
      bytes += block.charge.bytes;
      if (!block.wasReady) {
        budget.release(block.charge);
      }
    }

    /** Counts what has left once it has, and throws what was refused first. */
    void leave() {
      if (bytes > 0) {
        Completion.Source<@Nullable Void> gone = Completion.source();
        left = gone.completion();
        Frontier.endOf(stream.mark())
            .onDone(
                _ -> {
                  held.addAndGet(-bytes);
                  gone.complete(null);
                });
      }
      switch (refusal) {
        case null -> {}
        case RuntimeException e -> throw e;
        case Error e -> throw e;
        default -> throw new AssertionError(refusal);
      }
    }
  }

  private List<Resting> allBlocks() {
    List<Resting> all = new ArrayList<>();
    for (int i = 0; i < small.length(); i++) {
      Bin bin = small.get(i);
      if (bin != null) {
        bin.addTo(all);
      }
    }
    large.values().forEach(bin -> bin.addTo(all));
    all.sort(Comparator.comparingLong(block -> block.age));
    return all;
  }

  private void unlink(Resting block) {
    long bytes = block.charge.bytes;
    Bin bin = bin(bytes);
    if (bin != null) {
      bin.removeTaken(block);
      if (bytes > SMALL_MAX) {
        large.computeIfPresent(bytes, (size, known) -> known.isEmpty() ? null : known);
      }
    }
  }

  @Override
  public long cached() {
    return ready.get();
  }

  @Override
  public long reused() {
    return reused.sum();
  }

  @Override
  public void abandon() {
    reclaimer.abandon();
    for (Resting block : allBlocks()) {
      if (block.takeReady()) {
        unlink(block);
      }
    }
  }

  @Override
  public void close() {
    closing = true;
    if (context.isLost()) {
      abandon();
    }
    context.owner().call(this::returnAllAndExit).awaitUninterruptibly();
  }

  private @Nullable Void returnAllAndExit() {
    try {
      returnAll();
    } catch (DeviceException failure) {
      // what is left of it ends with the context
    } finally {
      exit.close();
    }
    return null;
  }

  // --- blocks -------------------------------------------------------------------------------

  /**
   * The blocks of one size, the newest first. The very newest has a place of its own: a program
   * that closes one and allocates the next gets no further.
   *
   * <pre>
   * newest --another comes--> others --taken--> gone
   *      \--taken: it stays until another comes, and is gone then
   * </pre>
   *
   * Whoever takes one that was newest when it looked may find it displaced, and whoever displaces
   * one may find it taken: both then look into {@code others}, the one after it was taken, the
   * other after it was added, so that it leaves them.
   */
  private static final class Bin {
    /** The exchange makes one of two who come at once displace the other's. */
    private final AtomicReference<@Nullable Resting> newest = new AtomicReference<>();

    private final ConcurrentLinkedDeque<Resting> others = new ConcurrentLinkedDeque<>();

    void add(Resting block) {
      Resting before = newest.getAndSet(block);
      if (before != null && !before.isTaken()) {
        others.addFirst(before);
        if (before.isTaken()) {
          others.removeFirstOccurrence(before);
        }
      }
    }

    /** One that {@code stream} may have at once. */
    @Nullable Resting take(DeviceStream stream) {
      Resting last = newest.get();
      if (last != null && last.takeFor(stream)) {
        leaves(last);
        return last;
      }
      int looks = 1;
      for (Iterator<Resting> each = others.iterator(); each.hasNext(); ) {
        Resting block = each.next();
        if (block.takeFor(stream)) {
          each.remove();
          return block;
        }
        if (++looks == NEWEST) {
          return takeOld(stream);
        }
      }
      return null;
    }

    private @Nullable Resting takeOld(DeviceStream stream) {
      int looks = 0;
      for (Iterator<Resting> each = others.descendingIterator(); each.hasNext(); ) {
        Resting block = each.next();
        if (block.takeFor(stream)) {
          each.remove();
          return block;
        }
        if (++looks == OLDEST) {
          return null;
        }
      }
      return null;
    }

    /** Any one, of all of them, that has nothing to be reached any more. */
    @Nullable Resting takeReady() {
      for (Iterator<Resting> each = others.descendingIterator(); each.hasNext(); ) {
        Resting block = each.next();
        if (block.takeReady()) {
          each.remove();
          return block;
        }
      }
      Resting last = newest.get();
      if (last != null && last.takeReady()) {
        leaves(last);
        return last;
      }
      return null;
    }

    @Nullable Resting takeOldest() {
      for (Iterator<Resting> each = others.descendingIterator(); each.hasNext(); ) {
        Resting block = each.next();
        if (block.takeReady() || block.takeUnreached()) {
          each.remove();
          return block;
        }
      }
      Resting last = newest.get();
      if (last != null && (last.takeReady() || last.takeUnreached())) {
        leaves(last);
        return last;
      }
      return null;
    }

    /** Of the newest one, which was taken. */
    @SuppressWarnings("ReferenceEquality")
    private void leaves(Resting taken) {
      if (newest.get() != taken) {
        others.removeFirstOccurrence(taken);
      }
    }

    /** Of any one that was taken; the oldest are looked at first. */
    @SuppressWarnings("ReferenceEquality")
    void removeTaken(Resting taken) {
      if (newest.get() != taken) {
        others.removeLastOccurrence(taken);
      }
    }

    void addTo(List<Resting> all) {
      Resting last = newest.get();
      if (last != null && !last.isTaken()) {
        all.add(last);
      }
      all.addAll(others);
    }

    /** While nobody adds. */
    boolean isEmpty() {
      Resting last = newest.get();
      return others.isEmpty() && (last == null || last.isTaken());
    }
  }

  /** A block that nobody owns. */
  private static final class Resting extends Reclaimer.Entry {
    private final FrontierPool pool;
    final long address;
    final long age;

    /** Of its taker: whether nothing had to be reached any more. */
    boolean wasReady;

    Resting(FrontierPool pool, long address, Frontier frontier, Charge charge) {
      super(frontier, charge);
      this.pool = pool;
      this.address = address;
      this.age = pool.age++;
    }

    /** In this order: it may be found READY in between, and only then be taken. */
    boolean isTaken() {
      return !isUnreached() && !isReleased();
    }

    /** The same block, after it was taken for nothing. */
    Resting again() {
      return new Resting(pool, address, wasReady ? Frontier.NONE : frontier, charge);
    }

    /** Of its taker: what its next use has to come after. */
    Frontier uses() {
      return wasReady ? Frontier.NONE : frontier.left();
    }

    boolean takeFor(DeviceStream stream) {
      return takeReady() || (isUnreached() && frontier.isBefore(stream) && takeUnreached());
    }

    boolean takeReady() {
      if (!takeReleased()) {
        return false;
      }
      wasReady = true;
      pool.ready.addAndGet(-charge.bytes);
      return true;
    }

    Block reuse(Charge paid) {
      pool.reused.increment();
      return new Block(address, uses(), paid);
    }

    @Override
    void reaching() {
      pool.ready.addAndGet(charge.bytes);
    }

    @Override
    void missed() {
      pool.ready.addAndGet(-charge.bytes);
    }

    @Override
    void reached() {
      pool.trimIfFull();
    }
  }

  /** Memory on its way to the driver. */
  private static final class Leaving extends Reclaimer.Entry {
    private final FrontierPool pool;

    Leaving(FrontierPool pool, Frontier freed, Charge charge) {
      super(freed, charge);
      this.pool = pool;
    }

    @Override
    void reached() {
      pool.held.addAndGet(-charge.bytes);
    }
  }
}
