package io.fairlead.host;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/**
 * One thread of a device. Takes a ready stream and runs its operations one after another while they
 * are hot; else helps with a shared kernel; else looks for a while, then parks.
 *
 * <pre>
 *   RUNNING --nothing to do--> SEARCHING --spun long enough--> PARKED --woken--> SEARCHING
 *      ^-------------- found ------'
 * </pre>
 *
 * <p>The device counts the workers that search. Who makes work ready wakes a worker only if none
 * searches; who stops searching because it found something and was the last to search looks once
 * more, and wakes another if there is more. This is the scheme of Go's scheduler: one wake-up in
 * flight at a time, none lost.
 *
 * <p>How long a worker looks is learnt: what pays is kept, what does not is halved down to nothing,
 * with a short try now and then. On a machine with more threads than processors the caller may be
 * waiting for this very processor, and looking is the one thing that keeps work from coming.
 *
 * <p>All fields belong to the worker's thread alone.
 */
final class Worker implements Runnable {
  /** Operations of one stream in a row while another stream waits. */
  private static final int TURN_OPERATIONS = 64;

  /** And their time. */
  private static final long TURN_NANOS = TimeUnit.MICROSECONDS.toNanos(200);

  /** Looks at a stream that just ran dry before it is given up: 1 to 5 µs. */
  private static final int LINGER_LOOKS = 64;

  /** A shorter look than this is none. */
  private static final long SPIN_NANOS_MIN = TimeUnit.MICROSECONDS.toNanos(1);

  /** After so many parks without looking, one look of {@link #TRY_NANOS}. */
  private static final int PARKS_UNTIL_TRY = 32;

  private static final long TRY_NANOS = TimeUnit.MICROSECONDS.toNanos(4);

  private final HostDevice device;
  private final int index;
  private final long spinNanosMax;
  private long spinNanos;
  private boolean searching;
  private boolean spinning;
  private int parksUntilTry;
  private int picks;

  Worker(HostDevice device, int index, long spinNanosMax) {
    this.device = device;
    this.index = index;
    this.spinNanosMax = spinNanosMax;
    this.spinNanos = spinNanosMax;
  }

  @Override
  public void run() {
    long idleSince = 0;
    while (!device.isStopping()) {
      if (workOnce()) {
        idleSince = 0;
      } else {
        startSearching();
        long now = System.nanoTime();
        idleSince = idleSince == 0 ? now : idleSince;
        if (!spin(now - idleSince)) {
          park();
          idleSince = 0;
        }
      }
    }
  }

  private boolean workOnce() {
    if (!device.hasWork()) {
      return false;
    }
    HostStream stream = device.poll(++picks);
    if (stream != null) {
      found();
      runStream(stream);
      return true;
    }
    RangeJob job = device.sharedJob(index);
    if (job != null) {
      found();
      help(job);
      return true;
    }
    return false;
  }

  // --- searching ------------------------------------------------------------------------------

  private void startSearching() {
    if (!searching) {
      searching = true;
      device.searchStarted();
    }
  }

  private void found() {
    if (spinning) {
      spinning = false;
      device.spinEnded();
      lookingPaid();
    }
    if (searching) {
      searching = false;
      device.searchSucceeded();
    }
  }

  /** Whether to look again; false if it is time to park. */
  private boolean spin(long idleNanos) {
    if (!spinning) {
      if (idleNanos > 0 || !mayLook() || !device.mayStartSpinning()) {
        return false;
      }
      spinning = true;
    }
    if (idleNanos < spinNanos) {
      Thread.onSpinWait();
      return true;
    }
    lookingFailed();
    return false;
  }

  private boolean mayLook() {
    if (spinNanos == 0 && spinNanosMax > 0 && --parksUntilTry <= 0) {
      parksUntilTry = PARKS_UNTIL_TRY;
      spinNanos = Math.min(spinNanosMax, TRY_NANOS);
    }
    return spinNanos > 0;
  }

  private void lookingPaid() {
    spinNanos = spinNanosMax;
  }

  private void lookingFailed() {
    spinNanos = spinNanos / 2 < SPIN_NANOS_MIN || spinNanos <= TRY_NANOS ? 0 : spinNanos / 2;
    parksUntilTry = PARKS_UNTIL_TRY;
  }

  private void park() {
    if (spinning) {
      spinning = false;
      device.spinEnded();
    }
    device.parked(index);
    searching = false;
    device.searchEnded();
    // Look again after both are known: work that came before is seen here, later work wakes us.
    if (device.hasWork() && device.unparkedMyself(index)) {
      // A searcher again: who brought more than one piece relied on our count, and only a searcher
      // that succeeds wakes another for the rest.
      searching = true;
      device.searchStarted();
      return;
    }
    while (device.isParked(index) && !device.isStopping()) {
      LockSupport.park(this);
    }
    searching = true; // whoever woke us counted us
  }

  // --- running --------------------------------------------------------------------------------

  private void runStream(HostStream stream) {
    stream.lastWorker = index;
    HostContext context = stream.context();
    int turn = 0;
    long turnStart = 0;
    long clock = 0;
    while (true) {
      Operation operation = stream.next();
      if (operation == null) {
        clock = 0;
        operation = linger(stream);
        if (operation == null) {
          if (stream.goIdle()) {
            return;
          }
          found();
          continue;
        }
      }
      if (operation instanceof LaunchOperation launch) {
        clock = clock == 0 ? System.nanoTime() : clock;
        if (!runOne(context, stream, launch)) {
          return;
        }
        long now = System.nanoTime();
        context.kernelNanos.add(now - clock);
        clock = now;
      } else {
        clock = 0;
        if (!runOne(context, stream, operation)) {
          return;
        }
      }
      stream.finished(operation);
      turn++;
      if (device.othersWait()) {
        turnStart = turnStart == 0 ? System.nanoTime() : turnStart;
        if (turnIsOver(stream, turn, turnStart)) {
          device.ready(stream);
          return;
        }
      }
    }
  }

  private boolean turnIsOver(HostStream stream, int turn, long turnStart) {
    return turn >= TURN_OPERATIONS
        || device.hasAbove(stream.priority)
        || System.nanoTime() - turnStart > TURN_NANOS;
  }

  /** False if the stream was left. */
  private boolean runOne(HostContext context, HostStream stream, Operation operation) {
    if (context.isLost()) {
      operation.abandon(stream);
      return true;
    }
    try {
      FaultPlan plan = device.faultPlan();
      if (plan != null) {
        plan.beforeOperation(operation);
      }
      return operation.run(stream, this);
    } catch (Throwable t) { // whatever a kernel throws is its context's fault, not the worker's end
      context.lose(Fault.of(t, stream, operation));
      operation.abandon(stream);
      return true;
    }
  }

  /** Waits a moment for the next operation of a stream that ran dry; meanwhile others may call. */
  private @Nullable Operation linger(HostStream stream) {
    if (spinNanos == 0 || device.othersWait()) {
      return null;
    }
    startSearching();
    for (int i = 0; i < LINGER_LOOKS; i++) {
      Operation operation = stream.next();
      if (operation != null) {
        found();
        lookingPaid();
        return operation;
      }
      if (device.hasWork()) {
        return null;
      }
      Thread.onSpinWait();
    }
    return null;
  }

  // --- shared kernels -------------------------------------------------------------------------

  /**
   * Whether there is anybody to share with. Not while a stream waits for a worker: that is work
   * which needs no handing out, and whoever is free takes it first.
   */
  boolean mayShare() {
    return device.workers() > 1 && !device.othersWait();
  }

  /** True if this worker ended the last piece, else the stream is left to whoever does. */
  boolean share(HostStream stream, RangeOperation operation) {
    RangeJob job = new RangeJob(stream, operation, device.workers());
    device.offer(index, job);
    boolean last = job.work(index);
    device.withdraw(index, job);
    return last;
  }

  private void help(RangeJob job) {
    boolean last = job.work(index);
    device.withdrawAnywhere(job);
    if (last) {
      HostStream stream = job.stream;
      if (job.operation.isKernel()) {
        stream.context().kernelNanos.add(System.nanoTime() - job.startNanos);
      }
      stream.finished(job.operation);
      runStream(stream);
    }
  }
}
