package io.fairlead.memory;

import io.fairlead.device.Access;
import io.fairlead.device.DeviceContext;
import io.fairlead.device.DeviceException;
import io.fairlead.device.DeviceGraph;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.GraphBuilder;
import io.fairlead.device.KernelModule;
import io.fairlead.device.ModuleSource;
import io.fairlead.device.OutOfDeviceMemoryException;
import io.fairlead.device.spi.DeviceInfo;
import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverCall;
import io.fairlead.fault.TaskCancelledException;
import io.fairlead.fault.TaskInterruptedException;
import io.fairlead.task.Completion;
import io.fairlead.task.Retired;
import io.fairlead.task.Role;
import io.fairlead.task.Task;
import io.fairlead.task.TaskRuntime;
import java.lang.ref.Cleaner;
import java.util.ArrayList;
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
import org.jspecify.annotations.Nullable;

/**
 * A device as users hold it: its streams, its kernels and its memory.
 *
 * <p><b>Memory.</b> Buffers, frees that the device has not reached, and reservations together never
 * take more than the limit. An allocation that does not fit parks the task until others gave enough
 * back, for a bounded time; then it fails with a report of who holds what. A task that goes on with
 * work that already holds memory comes before one that begins; among those that begin, the first to
 * ask is the first served.
 *
 * <p><b>Threads.</b> Any, for every method.
 *
 * <p><b>Ownership.</b> The device owns its context and closes it.
 */
public final class Device implements AutoCloseable {
  private static final Cleaner CLEANER = TaskRuntime.cleaner();

  private final DeviceContext context;
  private final MemoryConfig config;
  private final Sites sites;
  private final Budget budget;
  private final Reclaimer reclaimer;
  private final Pool pool;
  private final Account.Key accounts;
  private final Transfers transfers;

  /** Every storage that was not freed, for reports; it keeps no {@link DeviceBuffer} alive. */
  private final Set<Storage> live = ConcurrentHashMap.newKeySet();

  /** Of others, closed, and not released yet. */
  private final Set<Storage> releasing = ConcurrentHashMap.newKeySet();

  /** Volatile: an allocation looks again after it was listed, so close() or it sees the other. */
  private volatile boolean closed;

  private final AtomicBoolean closing = new AtomicBoolean();

  private Device(DeviceContext context, MemoryConfig config) {
    this.context = context;
    this.config = config;
    this.sites = new Sites(config.creationSites());
    this.budget = new Budget(limit(context, config));
    this.reclaimer = new Reclaimer(budget);
    this.pool = pool(context, config, budget, reclaimer);
    this.accounts = new Account.Key(budget);
    this.transfers = new Transfers(context, config.chunkBytes());
    // Nothing will be freed in order any more, and what is granted could not be used.
    context.lost().onDone(lost -> endMemory(lost.getNow()));
  }

  private void endMemory(RuntimeException lost) {
    budget.refuseWaiting(lost);
    pool.abandon();
  }

  private static Pool pool(
      DeviceContext context, MemoryConfig config, Budget budget, Reclaimer reclaimer) {
    DriverPool drivers = new DriverPool(context, budget, reclaimer, config.waitNanos());
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
    };
  }

  /**
   * Takes over an open context.
   *
   * @throws IllegalArgumentException if the limit is more than the device has
   */
  public static Device open(TaskRuntime tasks, DeviceContext context, MemoryConfig config) {
    Objects.requireNonNull(tasks, "tasks");
    return new Device(context, config);
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
    live.add(storage);
    if (closed) {
      close(storage);
      requireOpen();
    }
    DeviceBuffer buffer = new DeviceBuffer(this, storage);
    buffer.whenDropped(CLEANER.register(buffer, new Dropped(this, storage)));
    return buffer;
  }

  private Storage emptyStorage() {
    return new Storage(0, 0, null, Task.current().name(), sites.caller(), null, 0);
  }

  private Storage allocateStorage(long bytes) {
    DeviceStream stream = context.stream();
    Account account = account();
    Block block = pool.reuse(stream, account, Sizes.rounded(bytes));
    if (block == null) {
      block = allocateBlock(stream, account, bytes);
    }
    return new Storage(block, bytes, sites.caller(), stream);
  }

  private Block allocateBlock(DeviceStream stream, Account account, long bytes) {
    long rounded = Sizes.rounded(bytes);
    if (rounded > budget.limit()) {
      throw outOfMemory(bytes, sites.callerToTell(), "it can never fit", null);
    }
    Charge charge = budget.tryCharge(account, rounded);
    if (charge == null) {
      Block unfinished = pool.reuseUnfinished(stream, account, rounded);
      if (unfinished != null) {
        return unfinished;
      }
      charge = awaitCharge(account, bytes, rounded);
    }
    try {
      return pool.allocate(stream, bytes, charge);
    } catch (OutOfDeviceMemoryException refused) {
      budget.cancel(charge);
      throw outOfMemory(
          bytes, sites.callerToTell(), "the driver has no room although the limit has", refused);
    } catch (RuntimeException | Error failure) {
      budget.cancel(charge);
      throw failure;
    }
  }

  private Charge awaitCharge(Account account, long bytes, long rounded) {
    Budget.Request request = budget.charge(account, rounded);
    if (request.source != null) {
      awaitRoom(request, account, bytes, sites.callerToTell());
    }
    return Waiting.granted(request);
  }

  private void awaitRoom(Budget.Request request, Account account, long bytes, Site site) {
    long start = System.nanoTime();
    long limit = config.waitNanos();
    while (true) {
      long left = limit - (System.nanoTime() - start);
      boolean alone = budget.heldOnlyBy(account);
      long step = alone ? Math.min(left, config.graceNanos()) : left;
      if (Waiting.await(budget, reclaimer, request, Math.max(step, 0))) {
        return;
      }
      boolean stillAlone = alone && budget.heldOnlyBy(account);
      if (!stillAlone && System.nanoTime() - start < limit) {
        continue;
      }
      if (budget.withdraw(request)) {
        throw outOfMemory(bytes, site, whyNot(stillAlone), null);
      }
      return;
    }
  }

  private String whyNot(boolean alone) {
    return alone
        ? "the task itself holds all of it, so waiting does not help"
        : "nothing came back within " + config.waitNanos() / 1_000_000 + " ms";
  }

  private OutOfDeviceMemoryException outOfMemory(
      long bytes, Site site, String why, @Nullable Throwable cause) {
    reclaimer.sweep();
    String message = MemoryReport.text(bytes, site, why, info(), budget.stats().with(pool), live);
    return new OutOfDeviceMemoryException(message, "allocate", info().ordinal(), cause);
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
   *     primary context current: it may call the driver, and must not wait for tasks
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
    for (Set<Storage> known : List.of(live, releasing)) {
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
   * <p>While the body runs, conflicting uses by other tasks are refused, as under a lease.
   *
   * @param writes what is written, or read and written
   */
  public <T extends @Nullable Object> T foreign(
      List<DeviceBuffer> reads, List<DeviceBuffer> writes, ForeignBody<T> body) {
    Objects.requireNonNull(body, "body");
    requireOpen();
    DeviceStream stream = context.stream();
    List<Lease> leases = new ArrayList<>();
    try {
      long[] read = lend(reads, Access.READ, stream, leases);
      long[] written = lend(writes, Access.READ_WRITE, stream, leases);
      // ended before the thread goes on: who closes the device waits for that thread
      return context.foreign(stream, () -> body.run(read, written), () -> endAll(leases));
    } finally {
      endAll(leases); // of a body that did not begin
    }
  }

  private static long[] lend(
      List<DeviceBuffer> buffers, Access access, DeviceStream stream, List<Lease> leases) {
    long[] addresses = new long[buffers.size()];
    for (int i = 0; i < addresses.length; i++) {
      Lease lease = buffers.get(i).lease(stream, access);
      leases.add(lease);
      addresses[i] = lease.address();
    }
    return addresses;
  }

  private static void endAll(List<Lease> leases) {
    leases.forEach(Lease::close);
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
        Waiting.await(budget, reclaimer, request);
      }
    }
    return reservation(request);
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

  private Account account() {
    return Objects.requireNonNull(Task.current().get(accounts), "account of the task");
  }

  /**
   * The device's memory now. Does not block, and asks nobody: a free counts as in use until the
   * device is known to have reached it, which is when somebody has waited for that, or for memory,
   * or a few dozen operations later.
   */
  public MemoryStats memory() {
    reclaimer.sweep();
    return budget.stats().with(pool);
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

  Budget budget() {
    return budget;
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
      context.owner().retire(new ToFree(() -> freeNow(storage)));
    } else {
      freeNow(storage);
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
    Charge charge = storage.charge;
    if (charge == null) {
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

  private void release(Storage storage, Adoption adoption) {
    releasing.add(storage);
    live.remove(storage);
    adoption.released().onDone(_ -> releasing.remove(storage));
    adoption.end(storage.frontier());
    storage.freed();
  }

  private void end(Storage storage, Charge charge) {
    try {
      if (!pool.giveBack(storage, charge)) {
        context.owner().retire(new ToFree(() -> end(storage, charge)));
        return;
      }
    } catch (DeviceException failure) {
      if (!context.isLost()) {
        throw failure;
      }
      // The memory ended with its context, whose fault others report.
      budget.cancel(charge);
    }
    storage.freed();
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
    List<Leak> leaks = new ArrayList<>();
    try {
      closeGraphs();
      for (Storage storage : List.copyOf(live)) {
        if (closeForgotten(storage)) {
          leaks.add(leak(storage));
        }
      }
      if (!leaks.isEmpty()) {
        config.leakListener().accept(leaks);
      }
      awaitReleases();
    } finally {
      try {
        pool.close();
      } finally {
        accounts.forget();
        context.close();
      }
    }
  }

  /** So that what graphs hold can be freed; a graph that does not end keeps it until the end. */
  private void closeGraphs() {
    CountDownLatch gone = new CountDownLatch(1);
    context.closeGraphs().onDone(_ -> gone.countDown());
    boolean interrupted = Thread.interrupted();
    try {
      // if it is too short, the context says which work has not ended
      boolean _ = gone.await(context.config().closeNanos(), TimeUnit.NANOSECONDS);
    } catch (InterruptedException e) {
      interrupted = true;
    }
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
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
    long end = System.nanoTime() + context.config().closeNanos();
    boolean interrupted = false;
    while (true) {
      try {
        told.await(end - System.nanoTime(), TimeUnit.NANOSECONDS);
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

  /** Runs on the cleaner after a buffer was dropped; does nothing if it had been closed. */
  private record Dropped(Device device, Storage storage) implements Runnable {
    @Override
    public void run() {
      if (storage.isOpen()) {
        device.context.owner().retire(new Leaked(device, storage));
      }
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
      boolean alone = budget.heldOnlyBy(request.account);
      if (left > 0 && !alone) {
        later(left);
      } else if (budget.withdraw(request)) {
        result.fail(outOfMemory(bytes, site, whyNot(alone), null));
      }
    }
  }
}
