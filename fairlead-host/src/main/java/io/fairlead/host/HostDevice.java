package io.fairlead.host;

import io.fairlead.device.spi.DeviceInfo;
import io.fairlead.device.spi.DriverException;
import io.fairlead.host.pool.DevicePool;
import io.fairlead.task.BriefLock;
import io.fairlead.task.Role;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReferenceArray;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * A device: its workers, the streams that are ready for them, and its primary context.
 *
 * <p>Lock order: {@code life} is taken by retain, release, close and for the first stream only, and
 * nothing but the context's end and the workers' start happens under it. All else is lock-free.
 *
 * <table>
 * <caption>Shared state</caption>
 * <tr><th>field</th><th>written by</th><th>read by</th><th>mode</th></tr>
 * <tr><td>ready, jobs, openJobs</td><td>who makes work</td><td>workers</td>
 *     <td>volatile: written before searching and parkedWorkers are read</td></tr>
 * <tr><td>searching, parkedWorkers</td><td>workers, wakers</td><td>the same</td>
 *     <td>volatile: written before the last look for work</td></tr>
 * <tr><td>primary, retains</td><td colspan="3">guarded by life</td></tr>
 * <tr><td>threads</td><td>the first stream, under life</td><td>any</td><td>volatile</td></tr>
 * </table>
 */
final class HostDevice {
  /** A parked worker is woken for a shared kernel only if it has that many grains, about 10 µs. */
  private static final long GRAINS_WORTH_WAKING = 8;

  private static final long JOIN_MILLIS = TimeUnit.SECONDS.toMillis(5);

  private final int ordinal;
  private final HostConfig config;
  private final HandleTable handles;
  private final FaultPlanHolder faults;

  /** Workers of all devices that spin now; see {@link HostConfig#spinnersMax()}. */
  private final AtomicInteger spinners;

  private final ReadyQueue ready = new ReadyQueue();
  private final AtomicReferenceArray<@Nullable RangeJob> jobs;
  private final AtomicInteger openJobs = new AtomicInteger();
  private final AtomicInteger searching = new AtomicInteger();
  private final AtomicLong parkedWorkers = new AtomicLong();
  private volatile boolean stopping;
  private volatile List<Thread> threads = List.of();

  private final BriefLock life = new BriefLock();
  private final AtomicLong nextAddress;
  private @Nullable HostContext primary;
  private int retains;

  /** Holds what is to fail; one for each driver. */
  static final class FaultPlanHolder {
    volatile @Nullable FaultPlan plan;
  }

  HostDevice(
      int ordinal,
      HostConfig config,
      HandleTable handles,
      FaultPlanHolder faults,
      AtomicInteger spinners) {
    this.ordinal = ordinal;
    this.config = config;
    this.handles = handles;
    this.faults = faults;
    this.spinners = spinners;
    this.jobs = new AtomicReferenceArray<>(config.workers());
    // Each device has its own range, so that an address of another device is told apart.
    this.nextAddress = new AtomicLong((ordinal + 1L) << 48);
  }

  int ordinal() {
    return ordinal;
  }

  DeviceInfo info() {
    return new DeviceInfo(
        ordinal,
        "host device " + ordinal + " (" + config.workers() + " workers)",
        config.memoryBytes(),
        config.workers(),
        Integer.MAX_VALUE);
  }

  boolean isStepped() {
    return config.stepped();
  }

  boolean isPoisoning() {
    return config.poison();
  }

  // --- life -----------------------------------------------------------------------------------

  HostContext retain() {
    life.lock();
    try {
      if (stopping) {
        throw Status.refused(DriverException.NOT_INITIALIZED, "the host driver is closed");
      }
      if (primary == null) {
        primary = new HostContext(this, handles, new DevicePool(config.memoryBytes(), nextAddress));
        handles.add(primary);
      }
      primary.checkSound();
      retains++;
      return primary;
    } finally {
      life.unlock();
    }
  }

  void release(HostContext context) {
    life.lock();
    try {
      if (context == primary && --retains == 0) {
        primary = null;
        context.end();
      }
    } finally {
      life.unlock();
    }
  }

  /** Before the first stream: a runtime that only runs tasks needs no workers. */
  void startWorkers() {
    if (config.stepped() || !threads.isEmpty()) {
      return;
    }
    life.lock();
    try {
      if (threads.isEmpty() && !stopping) {
        startAll();
      }
    } finally {
      life.unlock();
    }
  }

  private void startAll() {
    List<Thread> started = new ArrayList<>();
    for (int i = 0; i < config.workers(); i++) {
      started.add(
          Role.DEVICE_MANAGER.newThread(
              "host-device" + ordinal + "-worker" + i, new Worker(this, i, config.spinNanos())));
    }
    threads = List.copyOf(started);
    started.forEach(Thread::start);
  }

  /** Ends the context, however often it is retained, and the workers. Blocks. */
  void close() {
    life.lock();
    try {
      HostContext context = primary;
      if (context != null) {
        primary = null;
        retains = 0;
        context.end();
      }
      stopping = true;
      threads.forEach(LockSupport::unpark);
    } finally {
      life.unlock();
    }
    threads.forEach(HostDevice::join);
  }

  private static void join(Thread thread) {
    try {
      thread.join(JOIN_MILLIS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt(); // the workers are daemons and on their way out
    }
  }

  /** The streams of the context there is now, in order of creation. */
  void forEachStream(HandleTable table, Consumer<HostStream> action) {
    HostContext context;
    life.lock();
    try {
      context = primary;
    } finally {
      life.unlock();
    }
    if (context != null) {
      table.forEach(
          context,
          entry -> {
            if (entry instanceof HostStream stream) {
              action.accept(stream);
            }
          });
    }
  }

  /** A thread that will touch host memory given to copies; null in stepped mode. */
  @Nullable Thread anyWorker() {
    List<Thread> all = threads;
    return all.isEmpty() ? null : all.getFirst();
  }

  // --- work -----------------------------------------------------------------------------------

  /** The stream has work and no owner. Any thread. */
  void ready(HostStream stream) {
    ready.offer(stream);
    wake(stream.lastWorker);
  }

  boolean hasWork() {
    return !ready.isEmpty() || openJobs.get() > 0;
  }

  boolean othersWait() {
    return !ready.isEmpty();
  }

  boolean hasAbove(int priority) {
    return ready.hasAbove(priority);
  }

  @Nullable HostStream poll(int pick) {
    return ready.poll(pick);
  }

  int workers() {
    return config.workers();
  }

  boolean isStopping() {
    return stopping;
  }

  @Nullable FaultPlan faultPlan() {
    return faults.plan;
  }

  // --- shared kernels -------------------------------------------------------------------------

  /** Each worker offers at most one job: it leaves it before it looks for other work. */
  void offer(int worker, RangeJob job) {
    openJobs.getAndIncrement();
    jobs.set(worker, job);
    if (job.operation.items() / job.operation.grain() >= GRAINS_WORTH_WAKING) {
      wake(worker);
    }
  }

  void withdraw(int worker, RangeJob job) {
    if (jobs.compareAndSet(worker, job, null)) {
      openJobs.getAndDecrement();
    }
  }

  void withdrawAnywhere(RangeJob job) {
    for (int i = 0; i < jobs.length(); i++) {
      if (jobs.get(i) == job) {
        withdraw(i, job);
      }
    }
  }

  @Nullable RangeJob sharedJob(int worker) {
    for (int i = 1; i < jobs.length(); i++) {
      RangeJob job = jobs.get((worker + i) % jobs.length());
      if (job != null) {
        return job;
      }
    }
    return null;
  }

  // --- sleeping and waking --------------------------------------------------------------------

  private void wake(int preferred) {
    while (parkedWorkers.get() != 0 && searching.compareAndSet(0, 1)) {
      int worker = takeParked(preferred);
      if (worker >= 0) {
        LockSupport.unpark(threads.get(worker));
        return;
      }
      // Nobody was parked after all. While we counted as searching, others relied on us.
      searching.getAndDecrement();
      if (!hasWork()) {
        return;
      }
    }
  }

  private int takeParked(int preferred) {
    while (true) {
      long parked = parkedWorkers.get();
      if (parked == 0) {
        return -1;
      }
      int worker =
          (parked & (1L << preferred)) != 0 ? preferred : Long.numberOfTrailingZeros(parked);
      if (parkedWorkers.compareAndSet(parked, parked & ~(1L << worker))) {
        return worker;
      }
    }
  }

  void searchStarted() {
    searching.getAndIncrement();
  }

  void searchEnded() {
    searching.getAndDecrement();
  }

  void searchSucceeded() {
    if (searching.decrementAndGet() == 0 && hasWork()) {
      wake(0);
    }
  }

  void parked(int worker) {
    parkedWorkers.getAndUpdate(bits -> bits | (1L << worker));
  }

  boolean isParked(int worker) {
    return (parkedWorkers.get() & (1L << worker)) != 0;
  }

  /** False if a waker was faster: then it counted the worker as searching. */
  boolean unparkedMyself(int worker) {
    long bit = 1L << worker;
    return (parkedWorkers.getAndUpdate(bits -> bits & ~bit) & bit) != 0;
  }

  boolean mayStartSpinning() {
    if (spinners.getAndIncrement() < config.spinnersMax()) {
      return true;
    }
    spinners.getAndDecrement();
    return false;
  }

  void spinEnded() {
    spinners.getAndDecrement();
  }
}
