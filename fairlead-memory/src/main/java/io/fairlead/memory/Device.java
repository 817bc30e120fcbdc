package io.fairlead.memory;

import io.fairlead.device.Access;
import io.fairlead.device.DeviceContext;
import io.fairlead.device.DeviceException;
import io.fairlead.device.DeviceGraph;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.GraphBuilder;
import io.fairlead.device.KernelModule;
import io.fairlead.device.ModuleSource;
import io.fairlead.device.Operand;
import io.fairlead.device.OutOfDeviceMemoryException;
import io.fairlead.device.spi.DeviceInfo;
import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.DriverException;
import io.fairlead.fault.Mutant;
import io.fairlead.fault.TaskCancelledException;
import io.fairlead.fault.TaskInterruptedException;
import io.fairlead.task.Completion;
import io.fairlead.task.Retired;
import io.fairlead.task.Role;
import io.fairlead.task.StuckTasks;
import io.fairlead.task.Task;
import io.fairlead.task.TaskRuntime;
import java.lang.ref.Reference;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;
import java.util.function.Supplier;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/**
 * A device as users hold it: its streams, its kernels and its memory.
 *
 * <p><b>Memory.</b> Buffers, frees that the device has not reached, and reservations together never
 * take more than the limit. An allocation that does not fit parks the task until others gave enough
 * back, for a bounded time; then it fails with a report of who holds what. A task that goes on with
 * work that already holds memory comes before one that begins; among those that begin, the first to
 * ask is the first served. For all of them, buffers that are idle leave the device first, if {@link
 * SpillConfig} lets them.
 *
 * <p><b>Threads.</b> Any, for every method.
 *
 * <p><b>Ownership.</b> The device owns its context and closes it.
 */
public final class Device implements AutoCloseable {
  /** How often those who are in the driver's way are asked to leave, until all of them are gone. */
  private static final int ROOM_STEPS = 16;

  /** How long who waits for them to leave does so at first, and at most, before he tries again. */
  private static final long BESIDES_MIN_NANOS = 1_000_000;

  private static final long BESIDES_MAX_NANOS = 100_000_000;

  /** How long who draws on a reservation waits before others leave for a block. */
  private static final long OTHERS_END_NANOS = 1_000_000_000;

  /**
   * How often who holds everything himself looks, at most, whether nothing is under way for him.
   */
  private static final long ALONE_MIN_NANOS = 1_000_000;

  /** Longer waits are as good as for ever, and may not overflow. */
  private static final Duration MAKE_ROOM_MAX = Duration.ofDays(1);

  /** A free that the driver has refused is tried again after that. */
  private static final long FREE_AGAIN_NANOS = 1_000_000;

  /** And after that at the latest. */
  private static final long FREE_AGAIN_NANOS_MAX = 100_000_000;

  private final DeviceContext context;
  private final MemoryConfig config;
  private final Sites sites;
  private final Budget budget;
  private final Reclaimer reclaimer;
  private final Pool pool;
  private final Account.Key accounts;
  private final Transfers transfers;
  private final Ticks ticks = new Ticks();
  private final Returns returns = new Returns(this);
  private final Spillables spillables;
  private final Spiller spiller;
  private final Ladder ladder;
  private final DriverPool drivers;
  private final Pressure pressure;

  private final Live live = new Live(this::dropped);

  /** Of others, closed, and not released yet. */
  private final Set<Storage> releasing = ConcurrentHashMap.newKeySet();

  /** Volatile: an allocation looks again after it was listed, so close() or it sees the other. */
  private volatile boolean closed;

  private final AtomicBoolean closing = new AtomicBoolean();

  /** Volatile: the context is gone, and all memory with it. Leases may end later. */
  private volatile boolean ended;

  private Device(TaskRuntime tasks, DeviceContext context, MemoryConfig config) {
    this.context = context;
    this.config = config;
    this.sites = new Sites(config.creationSites());
    this.budget = new Budget(limit(context, config));
    this.reclaimer = new Reclaimer(budget);
    this.drivers = new DriverPool(context, budget, reclaimer, config.waitNanos());
    this.pool = pool(context, config, budget, reclaimer, drivers);
    this.accounts = new Account.Key(budget);
    this.transfers = new Transfers(context, config.chunkBytes());
    this.spillables = new Spillables(this, tasks, ticks);
    this.spiller = new Spiller(this, tasks, budget, reclaimer, live, spillables, ticks, config);
    budget.onMissing(spiller::needed);
    this.ladder = new Ladder(this, budget, returns, spiller, live, config);
    this.pressure = new Pressure(budget, reclaimer, pool, drivers, spiller, spillables);
    // Nothing will be freed in order any more, and what is granted could not be used.
    context.lost().onDone(lost -> endMemory(lost.getNow()));
  }

  private void endMemory(RuntimeException lost) {
    budget.refuseWaiting(lost);
    returns.refuse(lost);
    pool.abandon();
    spiller.lost();
  }

  private static Pool pool(
      DeviceContext context,
      MemoryConfig config,
      Budget budget,
      Reclaimer reclaimer,
      DriverPool drivers) {
    Pool pool = barePool(context, config, budget, reclaimer, drivers);
    return config.wrapping().around(pool, context.toString(), context.ordinal());
  }

  private static Pool barePool(
      DeviceContext context,
      MemoryConfig config,
      Budget budget,
      Reclaimer reclaimer,
      DriverPool drivers) {
    return switch (config.pool()) {
      case DRIVER -> drivers;
      case FAIRLEAD ->
          new FrontierPool(
              context,
              budget,
              reclaimer,
              drivers,
              config.cachedBytesMax(budget.limit()),
              config.waitNanos());
      case ARENA -> {
        // where others may leave, that is what makes a piece; see allocateInRoomOfOthers
        long pieceNanos = config.spill().isOn() ? 0 : config.waitNanos();
        yield new ArenaPool(context, budget, reclaimer, drivers, config.waitNanos(), pieceNanos);
      }
    };
  }

  /**
   * Takes over an open context.
   *
   * @throws IllegalArgumentException if the limit is more than the device has
   */
  public static Device open(TaskRuntime tasks, DeviceContext context, MemoryConfig config) {
    Objects.requireNonNull(tasks, "tasks");
    return new Device(tasks, context, config);
  }

  private static long limit(DeviceContext context, MemoryConfig config) {
    long has = context.info().memoryBytes();
    if (config.limitBytes() > has) {
      throw new IllegalArgumentException(
          "the memory limit is "
              + Sizes.text(config.limitBytes())
              + ", but "
              + context.info().name()
              + " has "
              + Sizes.text(has));
    }
    if (config.limitBytes() != MemoryConfig.WHOLE_DEVICE) {
      return config.limitBytes();
    }
    Driver driver = context.driver();
    return context.driverCall(
        DriverCall.MEMORY_INFO,
        "memory info",
        () -> driver.memoryInfo(context.nativeContext()).freeBytes());
  }

  // --- what it is ---------------------------------------------------------------------------

  public DeviceContext context() {
    return context;
  }

  public DeviceInfo info() {
    return context.info();
  }

  /** The stream of the task that calls; see {@link DeviceContext#stream()}. */
  public DeviceStream stream() {
    return context.stream();
  }

  /** Loads code; waits for the driver. See {@link DeviceContext#load}. */
  public KernelModule load(ModuleSource source) {
    return context.load(source);
  }

  /** Captures what the body enqueues, for a graph. See {@link DeviceContext#capture}. */
  public DeviceGraph capture(String name, Consumer<DeviceStream> body) {
    return context.capture(name, body);
  }

  /** Makes a graph node by node. See {@link DeviceContext#buildGraph}. */
  public GraphBuilder buildGraph(String name) {
    return context.buildGraph(name);
  }

  // --- memory -------------------------------------------------------------------------------

  /**
   * Allocates {@code bytes}, whose content is undefined, in the order of the task's stream; other
   * streams that use them are ordered after that by themselves. 0 bytes are legal and take nothing.
   *
   * <p>Parks the task while the limit leaves no room, up to the configured time. Interrupt,
   * cancellation and deadline of the task end the wait.
   *
   * @throws OutOfDeviceMemoryException if there was no room in time, or never can be; the message
   *     has the request, the limit, and the largest holders
   */
  public DeviceBuffer allocate(long bytes) {
    requireSize(bytes, "a buffer");
    requireOpen();
    return buffer(bytes == 0 ? emptyStorage() : allocateStorage(bytes));
  }

  private DeviceBuffer buffer(Storage storage) {
    DeviceBuffer buffer = new DeviceBuffer(this, storage);
    live.add(buffer, storage);
    if (closed) {
      try {
        refuse(storage);
      } finally {
        Reference.reachabilityFence(buffer); // it is not dropped, but was never handed out
      }
    }
    return buffer;
  }

  /** The device was closed meanwhile; who closes it may have found the storage, or not. */
  private void refuse(Storage storage) {
    if (storage.adoption == null) {
      close(storage);
      requireOpen();
    } else if (storage.close(storage.site)) {
      live.remove(storage); // it stays its maker's, who is told so
      requireOpen();
    }
  }

  private Storage emptyStorage() {
    return new Storage(0, 0, null, Task.current().name(), sites.caller(), null, 0);
  }

  private Storage allocateStorage(long bytes) {
    DeviceStream stream = context.stream();
    Account account = account();
    mayAllocate(account, bytes);
    Block block = pool.reuse(stream, account, Sizes.rounded(bytes));
    if (block == null) {
      block = allocateBlock(stream, account, bytes);
    }
    Storage storage = Storage.of(block, bytes, sites.caller(), stream);
    storage.born(ticks);
    Try attempt = account.attempt;
    if (attempt != null) {
      storage.attempt = attempt;
      attempt.made.add(storage);
    }
    return storage;
  }

  /** A try that was rolled back gets nothing more, and a drill is as if there was nothing. */
  private void mayAllocate(Account account, long bytes) {
    Try attempt = account.attempt;
    Verdict end = attempt == null ? null : attempt.endAround();
    if (end != null) {
      throw new MemoryRollbackException(end);
    }
    Drill drill = account.drill;
    Verdict drilled = drill == null ? null : drill.next(attempt);
    if (drilled != null) {
      throw ladder.toThrow(drilled, bytes, sites.callerToTell());
    }
  }

  private Block allocateBlock(DeviceStream stream, Account account, long bytes) {
    long rounded = Sizes.rounded(bytes);
    if (rounded > budget.limit()) {
      throw outOfMemory(bytes, sites.callerToTell(), "it can never fit", null);
    }
    ticks.tick();
    Charge charge = budget.tryCharge(account, rounded);
    if (charge == null) {
      Block unfinished = pool.reuseUnfinished(stream, account, rounded);
      if (unfinished != null) {
        return unfinished;
      }
      charge = awaitCharge(budget.charge(account, rounded), bytes);
    }
    try {
      return pool.allocate(stream, bytes, charge);
    } catch (OutOfDeviceMemoryException refused) {
      if (!mayMakeRoomFor(stream)) {
        return allocateFromOthers(stream, bytes, charge, refused);
      }
      if (charge.room == null) {
        return allocateInTurn(stream, account, bytes, charge, refused);
      }
      budget.cancel(charge);
      Block block = allocateOnceOthersEnd(stream, account, bytes, rounded);
      return block != null ? block : allocateInTurn(stream, account, bytes, null, refused);
    } catch (RuntimeException | Error failure) {
      budget.cancel(charge);
      throw failure;
    }
  }

  // --- where the driver has no room although the limit has ------------------------------------

  private OutOfDeviceMemoryException refusedByDriver(
      long bytes, OutOfDeviceMemoryException refused) {
    return outOfMemory(
        bytes, sites.callerToTell(), "the driver has no room although the limit has", refused);
  }

  private boolean mayMakeRoomFor(DeviceStream stream) {
    return spiller.isOn() && mayWaitFor(stream) && !Mutant.on("spill.refused.skip");
  }

  private static boolean mayWaitFor(DeviceStream stream) {
    return !stream.isCaptured() && Role.current().mayWait() && !Spillables.isInside();
  }

  /** Where no buffers can leave. The charge is the caller's only if it gets a block. */
  private Block allocateFromOthers(
      DeviceStream stream, long bytes, Charge charge, OutOfDeviceMemoryException refused) {
    Block block = null;
    try {
      if (mayWaitFor(stream)) {
        long deadline = System.nanoTime() + config.waitNanos();
        block = allocateFromOthers(stream, bytes, charge, new HashSet<>(), true, deadline);
      }
    } finally {
      if (block == null) {
        budget.cancel(charge);
      }
    }
    if (block == null) {
      throw refusedByDriver(bytes, refused);
    }
    return block;
  }

  /**
   * Tries again after each {@link Spillable} that was asked for what it has outside of the limit.
   *
   * @param tried who need not be asked again
   * @param all also those that come after a buffer of ours
   * @return null if none of them has given enough
   */
  private @Nullable Block allocateFromOthers(
      DeviceStream stream,
      long bytes,
      Charge charge,
      Set<SpillRegistration> tried,
      boolean all,
      long deadline) {
    if (!spillables.hasAny(Spillable.Memory.UNTRACKED)) {
      return null;
    }
    Block block = null;
    while (block == null
        && System.nanoTime() - deadline < 0
        && pressure.askNext(charge.bytes, tried, all, deadline)) {
      try {
        block = pool.allocate(stream, bytes, charge);
      } catch (OutOfDeviceMemoryException again) {
        // the next one may have enough
      }
    }
    return block;
  }

  /**
   * Who reserves does a piece of work that ends, and so do others who have: their buffers are in
   * use until then, and would only be back at once.
   *
   * @return null if there is no room for it within {@link #OTHERS_END_NANOS} even so
   */
  private @Nullable Block allocateOnceOthersEnd(
      DeviceStream stream, Account account, long bytes, long rounded) {
    long deadline = System.nanoTime() + OTHERS_END_NANOS;
    Block block = null;
    for (long pause = BESIDES_MIN_NANOS;
        block == null && System.nanoTime() - deadline < 0 && !budget.heldOnlyBy(account);
        pause = Math.min(2 * pause, BESIDES_MAX_NANOS)) {
      Waiting.pause(pause);
      Charge charge = budget.tryCharge(account, rounded);
      block = charge == null ? null : allocateIfThere(stream, bytes, charge);
    }
    return block;
  }

  private @Nullable Block allocateIfThere(DeviceStream stream, long bytes, Charge charge) {
    try {
      return pool.allocate(stream, bytes, charge);
    } catch (OutOfDeviceMemoryException refused) {
      budget.cancel(charge);
      return null;
    } catch (RuntimeException | Error failure) {
      budget.cancel(charge);
      throw failure;
    }
  }

  /**
   * Makes room for one buffer; until it has the turn, it has nothing of what it asks for. Nobody
   * begins meanwhile, in its place.
   *
   * @param vain what it was granted for nothing; null if it was given back
   */
  private Block allocateInTurn(
      DeviceStream stream,
      Account account,
      long bytes,
      @Nullable Charge vain,
      OutOfDeviceMemoryException refused) {
    budget.holdBack();
    try {
      if (vain != null) {
        budget.cancel(vain);
      }
      returns.takeTurn(bytes, budget.goesOn(account));
      try {
        Charge charge = awaitCharge(budget.chargeInTurn(account, Sizes.rounded(bytes)), bytes);
        try {
          return allocateInRoomOfOthers(stream, bytes, charge, List.of(charge), refused);
        } catch (RuntimeException | Error failure) {
          budget.cancel(charge);
          throw failure;
        }
      } finally {
        returns.leaveTurn();
      }
    } finally {
      budget.goOn();
    }
  }

  /**
   * The driver's room may lie in pieces, or others may have taken of the device what the limit lets
   * us have. So this waits for more than it needs, for which others leave, and tries again with
   * that free; each time for more, at first for very little. It tries from time to time while it
   * waits, too: one who is in the way may be enough.
   *
   * <p>Who does this has the turn of {@link Returns}: so no two of them wait for each other, and
   * nobody else brings back what has just left.
   *
   * @param paid all that was granted to the caller and has no block yet, {@code charge} among it
   */
  private Block allocateInRoomOfOthers(
      DeviceStream stream,
      long bytes,
      Charge charge,
      List<Charge> paid,
      OutOfDeviceMemoryException refused) {
    long deadline = System.nanoTime() + config.waitNanos();
    long step = Math.max(Sizes.GRANULE, Sizes.rounded(budget.limit() / ROOM_STEPS));
    Set<SpillRegistration> tried = new HashSet<>();
    Block block = allocateFromOthers(stream, bytes, charge, tried, false, deadline);
    // Of who waits, who may not be who made what he brings back: it is he that can give way.
    Account account = Mutant.on("memory.besides.of-maker") ? charge.account : account();
    boolean more = true;
    for (long room = Sizes.GRANULE;
        block == null && more && charge.bytes + room <= budget.limit();
        room += Math.min(room, step)) {
      Budget.Request besides = budget.chargeBesides(account, room, paid);
      try {
        block = allocateBeside(besides, stream, bytes, charge, deadline);
        more = budget.isGranted(besides); // else there is no more to be had
      } finally {
        Waiting.forget(budget, besides);
      }
      if (block == null) { // others may be first now
        block = allocateFromOthers(stream, bytes, charge, tried, false, deadline);
      }
    }
    if (block == null) {
      block = allocateFromOthers(stream, bytes, charge, tried, true, deadline);
    }
    if (block == null) {
      throw refusedByDriver(bytes, refused);
    }
    return block;
  }

  /** Null if that is granted in vain, or not in time. */
  private @Nullable Block allocateBeside(
      Budget.Request besides, DeviceStream stream, long bytes, Charge charge, long deadline) {
    if (besides.source != null) {
      spiller.needed();
      begins(besides);
    }
    long start = System.nanoTime();
    long pause = BESIDES_MIN_NANOS;
    while (true) {
      long now = System.nanoTime();
      boolean late = now - deadline >= 0;
      boolean hopeless = now - start >= config.graceNanos() && isAlone(besides.account);
      boolean granted;
      try {
        granted = Waiting.await(budget, reclaimer, besides, late ? 0 : pause);
      } catch (Verdict verdict) {
        throw ladder.toThrow(verdict, bytes, sites.callerToTell());
      }
      try {
        return pool.allocate(stream, bytes, charge);
      } catch (OutOfDeviceMemoryException again) {
        if (granted || late || hopeless) {
          return null;
        }
      }
      pause = Math.min(2 * pause, BESIDES_MAX_NANOS);
    }
  }

  // --- for those who bring buffers back -------------------------------------------------------

  /**
   * Charges for buffers that come back together. Parks until there is room for all of them.
   *
   * @param together bytes of all that the operation needs here, these among them
   * @param paid what it keeps meanwhile, on other devices
   */
  List<Charge> chargeAgain(long together, List<Charge> before, List<Charge> paid) {
    if (together > budget.limit()) {
      throw outOfMemory(
          together, sites.callerToTell(), "the operands of one operation can never fit", null);
    }
    ticks.tick();
    Account account = account();
    Budget.Request request = budget.chargeAgain(account, before, paid);
    if (request.source != null) {
      awaitRoom(request, account, request.bytes, sites.callerToTell());
    }
    return Objects.requireNonNull(request.charges, "charges of a granted request");
  }

  /**
   * Memory for one of them; the charge stays the caller's if there is none.
   *
   * @param beforeOthers run before others have to leave for a block: what they may wait for;
   *     answers all charges of the caller that have no block yet. Null if the caller has not the
   *     turn: then nobody leaves for it
   * @return null if there is no room for a block, and the caller has to come again with the turn
   */
  @Nullable Block allocateAgain(
      DeviceStream stream,
      Storage storage,
      Charge charge,
      @Nullable Supplier<List<Charge>> beforeOthers) {
    try {
      return pool.allocate(stream, storage.bytes, charge);
    } catch (OutOfDeviceMemoryException refused) {
      if (!mayMakeRoomFor(stream)) {
        throw refusedByDriver(storage.bytes, refused); // nothing comes back where nothing leaves
      }
      if (beforeOthers == null) {
        return null;
      }
      List<Charge> paid = beforeOthers.get();
      budget.holdBack();
      try {
        return allocateInRoomOfOthers(stream, storage.bytes, charge, paid, refused);
      } finally {
        budget.goOn();
      }
    }
  }

  /** Why there is nothing to bring back. */
  RuntimeException lostImage(Storage storage) {
    DeviceException fault = context.fault();
    return fault != null
        ? fault
        : new IllegalStateException(storage.describe() + " has nothing left to bring back");
  }

  // --- waiting for room -----------------------------------------------------------------------

  private Charge awaitCharge(Budget.Request request, long bytes) {
    if (request.source != null) {
      awaitRoom(request, request.account, bytes, sites.callerToTell());
    }
    return Waiting.granted(request);
  }

  private void awaitRoom(Budget.Request request, Account account, long bytes, Site site) {
    spiller.needed();
    begins(request);
    long start = System.nanoTime();
    long limit = config.waitNanos();
    try {
      while (true) {
        long left = limit - (System.nanoTime() - start);
        boolean own = budget.heldOnlyBy(account);
        boolean alone = own && spiller.standsStill();
        long grace = Math.max(config.graceNanos(), spiller.hopeNanos(request));
        long step = own ? Math.min(left, Math.max(grace, ALONE_MIN_NANOS)) : left;
        if (Waiting.await(budget, reclaimer, request, Math.max(step, 0))) {
          return;
        }
        boolean stillAlone = alone && isAlone(account);
        if (!stillAlone && System.nanoTime() - start < limit) {
          continue;
        }
        String graph = ladder.describe();
        if (budget.withdraw(request)) {
          throw outOfMemory(bytes, site, whyNot(stillAlone, request), graph, null);
        }
        Waiting.await(budget, reclaimer, request); // granted, or told otherwise, just now
        return;
      }
    } catch (Verdict verdict) {
      throw ladder.toThrow(verdict, bytes, site);
    }
  }

  /**
   * What a task that is inside of a call of a {@link Spillable} fails with, in place of waiting.
   */
  OutOfDeviceMemoryException insideOfSpillable(long bytes) {
    String why =
        "the task is inside of a call of a Spillable, which does not wait for memory, since others"
            + " wait for what it frees";
    return outOfMemory(bytes, sites.callerToTell(), why, null);
  }

  /** The calling task waits in the request's place from now on. */
  private void begins(Budget.Request request) {
    if (Spillables.isInside()) {
      Waiting.forget(budget, request);
      throw insideOfSpillable(request.bytes);
    }
    request.place = StuckTasks.Place.here(); // volatile, before the look that it posts
    ladder.blocked();
    Try attempt = request.account.attempt;
    Verdict end = attempt == null ? null : attempt.endAround();
    if (end != null) { // by a look that did not see this one
      Waiting.forget(budget, request);
      throw new MemoryRollbackException(end);
    }
  }

  /**
   * For a try that begins again: its reservation, of as much as it is known to need. Waits for as
   * long as it takes.
   *
   * @throws Verdict if it cannot come
   */
  Reservation reserveAgain(long bytes) {
    Account account = account();
    Budget.Request request = budget.admitTry(account, bytes);
    if (request.source != null) {
      spiller.needed();
      begins(request);
      Waiting.await(budget, reclaimer, request);
    }
    return reservation(request);
  }

  /** Whether nobody else gives anything back. */
  private boolean isAlone(Account account) {
    return spiller.standsStill() && budget.heldOnlyBy(account);
  }

  private String whyNot(boolean alone, Budget.Request request) {
    String suspected =
        request.suspicion.since == 0
            ? ""
            : "; suspected: those who keep the memory wait themselves, for more of it or for"
                + " something of others'";
    return alone
        ? "the task itself holds all of it, so waiting does not help"
        : "nothing came back within " + config.waitNanos() / 1_000_000 + " ms" + suspected;
  }

  private OutOfDeviceMemoryException outOfMemory(
      long bytes, Site site, String why, @Nullable Throwable cause) {
    return outOfMemory(bytes, site, why, "", cause);
  }

  /**
   * @param graph lines that say who waits for whom
   */
  OutOfDeviceMemoryException outOfMemory(
      long bytes, Site site, String why, String graph, @Nullable Throwable cause) {
    reclaimer.sweep();
    String message =
        MemoryReport.text(
            bytes, site, why, info(), memoryNow(), spiller.tiers(), others(), live.all(), graph);
    return new OutOfDeviceMemoryException(message, "allocate", info().ordinal(), cause);
  }

  /** For reports: who else has memory of the device. */
  private String others() {
    StringBuilder text = new StringBuilder();
    try {
      text.append("\n  the driver says ").append(realMemory().text());
    } catch (DeviceException | IllegalStateException cannotSay) {
      text.append("\n  the driver does not say how much is free: ").append(cannotSay.getMessage());
    }
    long kept = pressure.kept();
    if (kept > 0) {
      text.append("\n  kept for others who have just asked for room ").append(Sizes.text(kept));
    }
    for (SpillRegistration each : spillables.open()) {
      text.append("\n  others: ").append(each);
    }
    return text.toString();
  }

  // --- foreign code and memory --------------------------------------------------------------

  /**
   * Puts memory of others under the ledger: a buffer like any other, except that it takes nothing
   * of the limit, and that closing it frees nothing. Instead {@code release} is run once, when
   * every use of it has ended, or none can end any more since the context is lost.
   *
   * <p>Until then its maker neither frees nor uses it, except under a {@link DeviceBuffer#lease
   * lease}, nor adopts it again.
   *
   * @param address where it begins; memory that the device's streams can use
   * @param stream its maker's stream (see {@link DeviceContext#adoptStream}), or one that comes
   *     after it: uses come after all that anybody has enqueued on it by now
   * @param release told once that nobody uses it; on the thread of the device's owner, with the
   *     primary context current: it may call the driver, and must not wait for tasks. If this
   *     device was closed before that, since a lease or another device's use outlived it, on a
   *     thread of its own, with no context current
   * @throws IllegalArgumentException if a part of it is under the ledger already
   */
  public DeviceBuffer adopt(long address, long bytes, DeviceStream stream, Runnable release) {
    Objects.requireNonNull(release, "release");
    requireSize(bytes, "a buffer");
    requireOpen();
    if (address == 0 || bytes == 0) {
      throw new IllegalArgumentException(
          "adopted memory has an address and at least one byte, not " + bytes + " at " + address);
    }
    if (stream.context() != context) {
      throw new IllegalArgumentException(
          stream + " is of another device than " + this + "; use one of the memory's own device");
    }
    Storage storage =
        new Storage(
            address,
            bytes,
            null,
            Task.current().name(),
            sites.caller(),
            stream,
            stream.foreignMark().sequence());
    storage.adoption = new Adoption(context, release);
    requireUnknown(storage);
    return buffer(storage);
  }

  /** A look, not a lock: two who adopt the same memory at once may both get it. */
  private void requireUnknown(Storage adopted) {
    for (Collection<Storage> known : List.of(live.all(), releasing)) {
      for (Storage each : known) {
        if (each.overlaps(adopted.address, adopted.bytes)) {
          throw new IllegalArgumentException(
              Sizes.text(adopted.bytes)
                  + " at 0x"
                  + Long.toHexString(adopted.address)
                  + " are a part of, or have a part in common with, a "
                  + each.describe()
                  + ": use that one, or wait for its release");
        }
      }
    }
  }

  /**
   * Makes something known that can give memory of this device back when it is needed; see {@link
   * Spillable}. The registration is the caller's: he keeps it for as long as it is to be asked, and
   * closes it. Any thread; does not block.
   *
   * @param name for reports and threads
   * @param memory whether the limit knows of what it has
   */
  public SpillRegistration register(String name, Spillable.Memory memory, Spillable spillable) {
    requireOpen();
    SpillRegistration made = spillables.register(name, memory, spillable);
    if (closed) { // meanwhile, and who closes it may not have found this one
      made.close();
      requireOpen();
    }
    return made;
  }

  /**
   * Makes room on the device for others who allocate there without Fairlead: another library's
   * allocator that has just failed, for one. Returns unused memory to the device, of our pool and
   * of the driver's shared one; waits for frees; lets buffers leave, and asks {@link Spillable}s,
   * lowest priority first; until so many bytes are free, or nothing more can be done, or the time
   * is over. What has left for it is kept from Fairlead's own allocations for 100 ms more, so that
   * who asked comes first.
   *
   * <p>Any thread, in a task or not. Blocks the task, or the thread that is in none, as long as
   * {@code atMost}, and a moment more for what the driver has begun by then; not at all a thread
   * that must not wait (a device's owner, a communication thread), nor inside of a {@link
   * Spillable}: these are only told. {@link SpillRegistration#makeRoom} is for who is registered
   * himself.
   *
   * <p>Called by native code, on a virtual thread, it blocks the carrier as well.
   *
   * @param bytes how many are to be free, in all
   * @return how many bytes are free for anybody now: maybe in pieces, maybe more or less than asked
   *     for
   * @throws io.fairlead.device.DeviceException if the context is lost
   */
  public long makeRoom(long bytes, Duration atMost) {
    requireSize(bytes, "room");
    requireOpen();
    boolean isLong = atMost.compareTo(MAKE_ROOM_MAX) > 0;
    long nanos = (isLong ? MAKE_ROOM_MAX : atMost).toNanos();
    return pressure.makeRoom(bytes, Math.max(0, nanos));
  }

  /**
   * The device's memory as its driver sees it, beside what we believe to have. Any thread that may
   * wait; asks the driver, which takes some microseconds.
   *
   * @throws io.fairlead.device.DeviceException if the context is lost
   */
  public RealMemory realMemory() {
    requireOpen();
    long ours = budget.stats().inUse() + pool.cached() - pressure.kept();
    return RealMemory.of(drivers.memoryInfo(), Math.max(0, ours));
  }

  /** A stream that somebody else made; see {@link DeviceContext#adoptStream}. */
  public DeviceStream adoptStream(long nativeStream) {
    return context.adoptStream(nativeStream);
  }

  /**
   * Runs foreign code that knows no streams, on a thread that may block, with the primary context
   * current. What it enqueues without naming a stream comes after all uses that conflict with its
   * own, and after what the calling task has enqueued; later uses, and later work of the task, come
   * after that. Returns when the body has; its work need not have ended. {@link
   * DeviceContext#foreign} says more.
   *
   * <p>While the body runs, conflicting uses by other tasks are refused, as under a lease. Where
   * the driver does not say at its end where its work ends (a library captures a blocking stream
   * just then), this fails, the buffers stay lent, and the calling task's work on the device is
   * refused, until the driver has said it; that is tried again and again.
   *
   * @param writes what is written, or read and written
   */
  public <T extends @Nullable Object> T foreign(
      List<DeviceBuffer> reads, List<DeviceBuffer> writes, ForeignBody<T> body) {
    Objects.requireNonNull(body, "body");
    requireOpen();
    DeviceStream stream = context.stream();
    ForeignLeases leases = new ForeignLeases(stream);
    try {
      long[] read;
      long[] written;
      // together: a lease of one must not wait for memory while it keeps that of another
      try (var _ = keep(stream, reads, writes)) {
        read = leases.lend(reads, Access.READ);
        written = leases.lend(writes, Access.READ_WRITE);
      }
      // ended before the thread goes on: who closes the device waits for that thread
      return context.foreign(stream, () -> leases.run(body, read, written), leases::endAll);
    } finally {
      leases.endUnlessBegun();
    }
  }

  private Operand.Stay keep(
      DeviceStream stream, List<DeviceBuffer> reads, List<DeviceBuffer> writes) {
    if (!spiller.isOn()) {
      return () -> {};
    }
    return Returns.bringBack(
        stream, Stream.concat(reads.stream(), writes.stream()).toArray(Operand[]::new));
  }

  // --- admission ----------------------------------------------------------------------------

  /**
   * Reserves {@code bytes} for the calling task and the children it forks from now on; see {@link
   * Reservation}. Parks the task until they are there, in the order of asking; a reservation inside
   * another that does not fit into it waits only as long as an allocation, since its task already
   * holds memory that others may wait for.
   *
   * @throws OutOfDeviceMemoryException at once if {@code bytes} is more than the limit
   */
  public Reservation reserve(long bytes) {
    requireReservable(bytes);
    Account account = account();
    Budget.Request request = budget.admit(account, Sizes.rounded(bytes), true);
    if (request.source != null) {
      if (request.continues) {
        awaitRoom(request, account, bytes, sites.callerToTell());
      } else {
        awaitFresh(request, bytes);
      }
    }
    return reservation(request);
  }

  private void awaitFresh(Budget.Request request, long bytes) {
    spiller.needed();
    begins(request);
    try {
      Waiting.await(budget, reclaimer, request);
    } catch (Verdict verdict) {
      throw ladder.toThrow(verdict, bytes, sites.callerToTell());
    }
  }

  /** As {@link #reserve}, if the bytes are there now; never waits, nor overtakes who does. */
  public Optional<Reservation> tryReserve(long bytes) {
    requireReservable(bytes);
    reclaimer.sweep();
    Budget.Request request = budget.admit(account(), Sizes.rounded(bytes), true);
    if (request.source != null && budget.withdraw(request)) {
      return Optional.empty();
    }
    return Optional.of(reservation(request));
  }

  /**
   * As {@link #reserve}, without waiting: the completion brings the reservation, which is the
   * calling task's; on a thread that never entered it only admits. Cancelling the completion
   * withdraws the request. If the task holds memory already, the completion fails when an
   * allocation would: nobody may be left to give back what is missing.
   */
  public Completion<Reservation> requestReservation(long bytes) {
    requireReservable(bytes);
    // Threads that never entered share one account: one of them must not draw on another's.
    boolean attach = !Task.current().isRoot();
    Budget.Request request = budget.admit(account(), Sizes.rounded(bytes), attach);
    Completion.Source<Boolean> granted = request.source;
    if (granted == null) {
      return Completion.completed(reservation(request));
    }
    Completion.Source<Reservation> result = Completion.source();
    result.onCancel(() -> Waiting.forget(budget, request));
    granted.completion().onDone(done -> hand(done, request, result));
    spiller.needed();
    reclaimer.watch();
    if (request.continues) {
      new Expiry(request, result, bytes, sites.callerToTell()).start();
    }
    return result.completion();
  }

  private void hand(
      Completion<Boolean> done, Budget.Request request, Completion.Source<Reservation> result) {
    Throwable refused = done.cause();
    if (refused != null) {
      result.fail(refused);
      return;
    }
    Reservation reservation = reservation(request);
    if (!result.complete(reservation)) {
      reservation.close();
    }
  }

  private Reservation reservation(Budget.Request request) {
    return new Reservation(budget, Objects.requireNonNull(request.room, "room of a grant"));
  }

  private void requireReservable(long bytes) {
    requireSize(bytes, "a reservation");
    requireOpen();
    if (Sizes.rounded(bytes) > budget.limit()) {
      throw outOfMemory(bytes, sites.callerToTell(), "it can never fit", null);
    }
  }

  Account account() {
    return Objects.requireNonNull(Task.current().get(accounts), "account of the task");
  }

  /**
   * The device's memory now. Does not block, and asks nobody: a free counts as in use until the
   * device is known to have reached it, which is when somebody has waited for that, or for memory,
   * or a few dozen operations later.
   */
  public MemoryStats memory() {
    reclaimer.sweep();
    return memoryNow();
  }

  private MemoryStats memoryNow() {
    return spiller.with(budget.stats().with(pool)).with(ladder.waits());
  }

  /**
   * Returns the memory that the pool keeps for later buffers to the driver, so that others on the
   * device can have it. Does not wait; done when the device has let it go. What is not known to be
   * unused any more stays: wait for its work first. Nobody has to call it for Fairlead's own sake.
   */
  public Completion<@Nullable Void> trim() {
    requireOpen();
    reclaimer.sweep();
    return pool.trim(Long.MAX_VALUE);
  }

  Pool pool() {
    return pool;
  }

  Budget budget() {
    return budget;
  }

  Returns returns() {
    return returns;
  }

  /** Every storage that was not freed; for tests. */
  List<Storage> live() {
    return live.all();
  }

  Ladder ladder() {
    return ladder;
  }

  Spiller spiller() {
    return spiller;
  }

  Spillables spillables() {
    return spillables;
  }

  Transfers transfers() {
    return transfers;
  }

  Site site() {
    return sites.caller();
  }

  private static void requireSize(long bytes, String what) {
    if (bytes < 0 || bytes > Sizes.MAX) {
      throw new IllegalArgumentException(what + " of " + bytes + " bytes");
    }
  }

  boolean isClosed() {
    return closed;
  }

  private void requireOpen() {
    if (closed) {
      throw closedNow();
    }
  }

  private IllegalStateException closedNow() {
    return new IllegalStateException("device " + info().ordinal() + " was closed; open it again");
  }

  // --- giving memory back -------------------------------------------------------------------

  void close(Storage storage) {
    if (storage.close(sites.callerOfSame(storage.site))) {
      free(storage);
    }
  }

  /**
   * Frees a storage that is {@code FREEING}, on this thread or, where it may not wait, the owner.
   */
  void free(Storage storage) {
    Role role = Role.current();
    if (role == Role.DEVICE_MANAGER || role == Role.COMM || role == Role.CLEANER) {
      leave(() -> freeNow(storage));
    } else {
      freeNow(storage);
    }
  }

  /** Leaves it to the owner; done at once where that has ended, and nothing can wait any more. */
  void leave(Runnable rest) {
    if (!context.owner().retire(new ToFree(rest))) {
      rest.run();
    }
  }

  /**
   * As {@link #free}, at once on the owner: the device may close as soon as its graphs are gone.
   */
  void freeHeld(Storage storage) {
    if (context.owner().isOwnerThread()) {
      freeNow(storage);
    } else {
      free(storage);
    }
  }

  private void freeNow(Storage storage) {
    Adoption adoption = storage.adoption;
    if (adoption != null) {
      release(storage, adoption);
      return;
    }
    live.remove(storage);
    Try attempt = storage.attempt;
    if (attempt != null) {
      attempt.made.remove(storage);
    }
    freeBelow(storage);
    Charge charge = storage.charge;
    if (charge == null) {
      storage.freed();
      return;
    }
    if (ended) {
      budget.cancel(charge);
      storage.freed();
      return;
    }
    try {
      end(storage, charge);
    } catch (TaskCancelledException | TaskInterruptedException stop) {
      // It takes another stream, which has to be made, and this task must not wait for that any
      // more. The owner makes it itself.
      context.owner().retire(new ToFree(() -> end(storage, charge)));
    }
  }

  private void freeBelow(Storage storage) {
    Image image = storage.dropImage();
    if (image != null) {
      image.release();
    }
    Charge below = storage.chargeBelow();
    if (below != null) {
      budget.leftBelow(below);
    }
  }

  private void release(Storage storage, Adoption adoption) {
    releasing.add(storage);
    live.remove(storage);
    adoption.released().onDone(_ -> releasing.remove(storage));
    adoption.end(storage.frontier());
    storage.freed();
  }

  /** Gives the memory of a storage that is {@code FREEING} back to the pool. */
  void end(Storage storage, Charge charge) {
    end(storage, charge, FREE_AGAIN_NANOS);
  }

  /**
   * What the driver refuses is said to who closes it, and tried again, since nobody else ever
   * would: each time later. Not what it no longer knows a stream of, which stays so.
   */
  private void end(Storage storage, Charge charge, long nap) {
    try {
      if (!pool.giveBack(storage, charge)) {
        context.owner().retire(new ToFree(() -> end(storage, charge)));
        return;
      }
    } catch (DeviceException failure) {
      if (!context.isLost()) {
        if (failure.status() != DriverException.INVALID_HANDLE) {
          // the JDK's own timer: no thread of ours for something that hardly ever happens
          Future<?> _ =
              ForkJoinPool.commonPool()
                  .schedule(
                      () -> leave(() -> endAgain(storage, charge, nap)), nap, TimeUnit.NANOSECONDS);
        }
        throw failure;
      }
      // The memory ended with its context, whose fault others report.
      budget.cancel(charge);
    }
    storage.freed();
  }

  private void endAgain(Storage storage, Charge charge, long before) {
    if (ended) {
      budget.cancel(charge);
      storage.freed();
      return;
    }
    try {
      end(storage, charge, Math.min(2 * before, FREE_AGAIN_NANOS_MAX));
    } catch (DeviceException refused) {
      // it was said before, and is tried again
    }
  }

  /**
   * Ends the device: no new buffers; whoever waits for memory fails; work that was enqueued ends;
   * buffers that are still open are reported and freed; then the context closes. Waits for the
   * work. A second close does nothing.
   */
  @Override
  public void close() {
    if (!closing.compareAndSet(false, true)) {
      return;
    }
    closed = true;
    budget.refuseWaiting(closedNow());
    returns.refuse(closedNow());
    List<Leak> leaks = new ArrayList<>();
    try {
      spillables.close();
      spiller.stop();
      closeGraphs();
      for (Storage storage : live.all()) {
        if (closeForgotten(storage)) {
          leaks.add(leak(storage));
        }
      }
      if (!leaks.isEmpty()) {
        config.leakListener().accept(leaks);
      }
      awaitReleases();
    } finally {
      spiller.close(); // files are written from pinned memory, which ends with the context
      try {
        pool.close();
      } finally {
        accounts.forget();
        context.close();
        ended = true;
      }
    }
  }

  /** So that what graphs hold can be freed; a graph that does not end keeps it until the end. */
  private void closeGraphs() {
    CountDownLatch gone = new CountDownLatch(1);
    context.closeGraphs().onDone(_ -> gone.countDown());
    awaitAsLongAsStreams(gone); // if it is too short, the context says which work has not ended
  }

  /** Whether it was still open; nobody had to close an empty one. */
  private boolean closeForgotten(Storage storage) {
    boolean wasOpen = storage.isOpen();
    close(storage);
    return wasOpen && storage.isHeld();
  }

  /** As long as the context waits for its streams: what ends with it is told, too, only later. */
  private void awaitReleases() {
    List<Completion<@Nullable Void>> releases = new ArrayList<>();
    for (Storage each : releasing) {
      releases.add(Objects.requireNonNull(each.adoption).released());
    }
    CountDownLatch told = new CountDownLatch(1);
    Completion.all(releases).onDone(_ -> told.countDown());
    awaitAsLongAsStreams(told);
  }

  /** As long as the context waits for its streams; goes on when it is interrupted. */
  private void awaitAsLongAsStreams(CountDownLatch latch) {
    long end = System.nanoTime() + context.config().closeNanos();
    boolean interrupted = false;
    while (true) {
      try {
        boolean _ = latch.await(end - System.nanoTime(), TimeUnit.NANOSECONDS);
        break;
      } catch (InterruptedException e) {
        interrupted = true;
      }
    }
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
  }

  private Leak leak(Storage storage) {
    return new Leak(info().ordinal(), storage.bytes, storage.task, storage.site.toString());
  }

  @Override
  public String toString() {
    return "device " + info().ordinal() + " (" + info().name() + ")";
  }

  /** Runs after the collector found a buffer dropped; does nothing if it had been closed. */
  private void dropped(Storage storage) {
    if (storage.isOpen()) {
      context.owner().retire(new Leaked(this, storage));
    }
  }

  /** On the owner: a dropped buffer is freed in order, like any other, and reported. */
  private static final class Leaked extends Retired {
    private final Device device;
    private final Storage storage;

    Leaked(Device device, Storage storage) {
      this.device = device;
      this.storage = storage;
    }

    @Override
    protected void release() {
      if (!storage.isOpen()) {
        return; // The device was closed meanwhile, and has reported it.
      }
      if (storage.close(Site.DROPPED)) {
        device.freeNow(storage);
      }
      if (storage.isHeld()) {
        device.config.leakListener().accept(List.of(device.leak(storage)));
      }
    }
  }

  /** On the owner: a close by a thread that may not wait. */
  private static final class ToFree extends Retired {
    private final Runnable rest;

    ToFree(Runnable rest) {
      this.rest = rest;
    }

    @Override
    protected void release() {
      rest.run();
    }
  }

  /** Ends a request that nobody waits in, as {@link #awaitRoom} ends one that somebody does. */
  private final class Expiry implements Runnable {
    private final Budget.Request request;
    private final Completion.Source<Reservation> result;
    private final long bytes;
    private final Site site;
    private final long start = System.nanoTime();

    Expiry(Budget.Request request, Completion.Source<Reservation> result, long bytes, Site site) {
      this.request = request;
      this.result = result;
      this.bytes = bytes;
      this.site = site;
    }

    /** First when the task has held everything alone for long enough, then at the end. */
    void start() {
      later(Math.min(config.graceNanos(), config.waitNanos()));
    }

    private void later(long nanos) {
      // The JDK's own timer: no thread of ours for something that hardly ever fires.
      Future<?> timer =
          ForkJoinPool.commonPool().schedule(this, Math.max(nanos, 0), TimeUnit.NANOSECONDS);
      result.completion().onDone(done -> timer.cancel(false));
    }

    @Override
    public void run() {
      long left = config.waitNanos() - (System.nanoTime() - start);
      boolean alone = isAlone(request.account);
      if (left > 0 && !alone) {
        later(left);
      } else if (budget.withdraw(request)) {
        result.fail(outOfMemory(bytes, site, whyNot(alone, request), null));
      }
    }
  }
}
