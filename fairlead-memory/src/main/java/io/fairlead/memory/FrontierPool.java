package io.fairlead.memory;

import io.fairlead.device.DeviceContext;
import io.fairlead.device.DeviceException;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.Mark;
import io.fairlead.device.OutOfDeviceMemoryException;
import io.fairlead.fault.DeadlineExceededException;
import io.fairlead.fault.Mutant;
import io.fairlead.task.Completion;
import io.fairlead.task.Retired;
import io.fairlead.task.Role;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.Iterator;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
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
 * ready    | any        | any    | atomic; raised before a block can be found READY
 * held     | any        | any    | atomic; raised before the driver is asked
 * age      | any        | owner  | plain: a lost update makes two blocks of one age
 * trimming | any        | any    | compare-and-set: the owner has a trim before it
 * closing  | close()    | any    | volatile; who gives back looks again after its block rests
 * exit     | the owner  | same   | plain
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
  private final AtomicBoolean trimming = new AtomicBoolean();
  private long age;
  private volatile boolean closing;
  private @Nullable DeviceStream exit;
  private volatile Completion<@Nullable Void> left = NOTHING;

  FrontierPool(
      DeviceContext context,
      Budget budget,
      Reclaimer reclaimer,
      DriverPool below,
      long readyMax,
      long waitNanos) {
    this.context = context;
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
    rest(
        new Resting(
            this, found.address, found.wasReady ? Frontier.NONE : found.frontier, found.charge));
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
        hasCome(trim(Long.MAX_VALUE), System.nanoTime() + waitNanos);
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
      if (!hasCome(room, deadline)) {
        throw new OutOfDeviceMemoryException(
            "unused memory was not let go in time", "allocate", context.ordinal(), null);
      }
      Thread.yield(); // a block may be on its way, with whoever has taken it and waits to go on
    }
  }

  private boolean hasCome(Completion<@Nullable Void> room, long deadline) {
    long nanos = deadline - System.nanoTime();
    if (nanos <= 0) {
      return false;
    }
    if (!Role.current().mayWait()) {
      return true;
    }
    try {
      room.await(Duration.ofNanos(nanos));
      return true;
    } catch (DeadlineExceededException late) {
      if (System.nanoTime() < deadline) {
        throw late; // not our deadline but the task's
      }
      return false;
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
    budget.closing(charge);
    Mark freed = below.free(storage);
    if (freed == null) {
      return false;
    }
    reclaimer.add(new Leaving(this, new Frontier(freed, List.of()), charge));
    return true;
  }

  private void rest(Resting block) {
    boolean isReady = block.isReleased();
    if (isReady) {
      ready.addAndGet(block.charge.bytes);
    }
    put(block);
    if (isReady) {
      trimIfFull();
    } else {
      reclaimer.add(block);
    }
  }

  private void put(Resting block) {
    long bytes = block.charge.bytes;
    if (bytes > SMALL_MAX) {
      // inside, so that the bin is not taken out of the map meanwhile
      large.compute(
          bytes,
          (size, known) -> {
            Bin bin = known == null ? new Bin() : known;
            bin.blocks.addFirst(block);
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
    Objects.requireNonNull(bin, "a bin is never taken away").blocks.addFirst(block);
  }

  /** A resting block has been reached: on the device's threads too, so it only asks the owner. */
  private void becameReady(long bytes) {
    ready.addAndGet(bytes);
    trimIfFull();
  }

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

  // --- back to the driver -------------------------------------------------------------------

  @Override
  public Completion<@Nullable Void> trim(long bytes) {
    if (context.owner().isOwnerThread()) {
      returnReady(bytes);
      return left;
    }
    Completion.Source<@Nullable Void> gone = Completion.source();
    context.owner().retire(new Order(() -> trim(bytes, gone)));
    return gone.completion();
  }

  private void trim(long bytes, Completion.Source<@Nullable Void> gone) {
    try {
      returnReady(bytes);
    } finally {
      left.onDone(_ -> gone.complete(null));
    }
  }

  /** Owner only. The oldest first. */
  private void returnReady(long bytes) {
    if (bytes <= 0 || ready.get() == 0) {
      return;
    }
    long taken = 0;
    DeviceStream stream = exit();
    for (Resting block : allBlocks()) {
      if (taken < bytes && block.takeReady()) {
        unlink(block);
        below.free(stream, block.address, Frontier.NONE);
        taken += block.charge.bytes;
      }
    }
    leaves(stream, taken);
  }

  /** Owner only: also what is still used, behind its uses. */
  private @Nullable Void returnAll() {
    List<Resting> all = allBlocks();
    if (all.isEmpty()) {
      return null;
    }
    long taken = 0;
    DeviceStream stream = exit();
    for (Resting block : all) {
      if (block.takeUnreached()) {
        below.free(stream, block.address, block.frontier.left());
        budget.release(block.charge);
      } else if (block.takeReady()) {
        below.free(stream, block.address, Frontier.NONE);
      } else {
        continue;
      }
      unlink(block);
      taken += block.charge.bytes;
    }
    leaves(stream, taken);
    return null;
  }

  private void leaves(DeviceStream stream, long bytes) {
    if (bytes > 0) {
      Completion.Source<@Nullable Void> gone = Completion.source();
      left = gone.completion();
      stream
          .reached()
          .onDone(
              _ -> {
                held.addAndGet(-bytes);
                gone.complete(null);
              });
    }
  }

  private DeviceStream exit() {
    DeviceStream known = exit;
    if (known == null) {
      known = context.openStream(0);
      exit = known;
    }
    return known;
  }

  private List<Resting> allBlocks() {
    List<Resting> all = new ArrayList<>();
    for (int i = 0; i < small.length(); i++) {
      Bin bin = small.get(i);
      if (bin != null) {
        all.addAll(bin.blocks);
      }
    }
    large.values().forEach(bin -> all.addAll(bin.blocks));
    all.sort(Comparator.comparingLong(block -> block.age));
    return all;
  }

  private void unlink(Resting block) {
    long bytes = block.charge.bytes;
    Bin bin = bin(bytes);
    if (bin != null) {
      bin.blocks.removeLastOccurrence(block);
      if (bytes > SMALL_MAX) {
        large.computeIfPresent(bytes, (size, known) -> known.blocks.isEmpty() ? null : known);
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
      DeviceStream stream = exit;
      exit = null;
      if (stream != null) {
        stream.close();
      }
    }
    return null;
  }

  // --- blocks -------------------------------------------------------------------------------

  /** The blocks of one size, the newest first. */
  private static final class Bin {
    final ConcurrentLinkedDeque<Resting> blocks = new ConcurrentLinkedDeque<>();

    /** One that {@code stream} may have at once. */
    @Nullable Resting take(DeviceStream stream) {
      int looks = 0;
      for (Iterator<Resting> each = blocks.iterator(); each.hasNext(); ) {
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
      for (Iterator<Resting> each = blocks.descendingIterator(); each.hasNext(); ) {
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

    @Nullable Resting takeOldest() {
      for (Iterator<Resting> each = blocks.descendingIterator(); each.hasNext(); ) {
        Resting block = each.next();
        if (block.takeReady() || block.takeUnreached()) {
          each.remove();
          return block;
        }
      }
      return null;
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
      return new Block(address, wasReady ? Frontier.NONE : frontier.left(), paid);
    }

    @Override
    void reached() {
      pool.becameReady(charge.bytes);
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

  /** Something for the owner to do; whoever is owed more than a try looks again. */
  private static final class Order extends Retired {
    private final Runnable order;

    Order(Runnable order) {
      this.order = order;
    }

    @Override
    protected void release() {
      try {
        order.run();
      } catch (DeviceException | IllegalStateException ended) {
        // the context is lost or closed, and its memory with it
      }
    }
  }
}
