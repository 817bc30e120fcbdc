package io.fairlead.host;

import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverException;
import io.fairlead.task.BriefLock;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * For tests: decides when the operations of a stepped host driver (setting {@code stepped}) start
 * and end, in any order a device might choose. Nothing else runs them; all of it happens on the
 * calling thread, listeners included, so a test that steps in a fixed order is deterministic.
 *
 * <pre>
 *   QUEUED --start--> STARTED --complete--> gone
 *      '------------- complete -----------'
 *   BLOCKED: waits for an event that was not reached; becomes QUEUED when it is
 * </pre>
 *
 * <p>An operation reads and writes memory when it starts; it counts as ended (signals, events, room
 * in memory, the next operation) when it completes. A test that starts late and one that starts
 * early meet the two extremes of what a device may do.
 *
 * <p>Threads: any; one step at a time. Blocking: only for another step. No method may be called
 * from a {@link io.fairlead.device.spi.StreamListener}.
 */
public final class HostStepper {
  /** Where a pending operation stands. */
  public enum State {
    /** It is first in its stream and may start, or it stands behind others. */
    QUEUED,
    /** It did its work and has not ended. */
    STARTED,
    /** It is first in its stream and waits for an event. */
    BLOCKED
  }

  /**
   * An operation that was enqueued and has not ended.
   *
   * @param stream the stream's handle
   * @param position 0 for the stream's next operation
   * @param description what it does
   */
  public record Pending(long stream, int position, String description, State state) {}

  /** A stream's operation that was started, and the fault that awaits its next one. */
  private static final class Progress {
    final HostStream stream;
    @Nullable Operation started;
    @Nullable DriverException planned;

    Progress(HostStream stream) {
      this.stream = stream;
    }

    @SuppressWarnings("ReferenceEquality") // this very operation is meant
    boolean hasStarted(Operation operation) {
      return started == operation;
    }
  }

  private final HostDriver driver;
  private final BriefLock lock = new BriefLock();

  /** Guarded by lock; in the order in which streams were first seen. */
  private final Map<HostStream, Progress> known = new LinkedHashMap<>();

  private HostStepper(HostDriver driver) {
    this.driver = driver;
  }

  /**
   * The stepper of a driver. Make one for each driver.
   *
   * @throws IllegalArgumentException if the driver is not a host driver in stepped mode
   */
  public static HostStepper of(Driver driver) {
    if (driver instanceof HostDriver host && host.isStepped()) {
      return new HostStepper(host);
    }
    throw new IllegalArgumentException(
        "only a host driver opened with the setting stepped=true can be stepped, not "
            + driver.name());
  }

  /** All pending operations, stream by stream in order of creation. */
  public List<Pending> pending() {
    lock.lock();
    try {
      List<Pending> all = new ArrayList<>();
      progress().forEach(p -> list(p, all));
      return all;
    } finally {
      lock.unlock();
    }
  }

  /** The pending operations of one stream, in order. */
  public List<Pending> pending(long stream) {
    return pending().stream().filter(p -> p.stream() == stream).toList();
  }

  /** The streams whose next operation may complete now. */
  public List<Long> ready() {
    lock.lock();
    try {
      return progress().stream()
          .map(p -> p.stream)
          .filter(HostStepper::mayComplete)
          .map(HandleTable.Entry::handle)
          .toList();
    } finally {
      lock.unlock();
    }
  }

  /**
   * The stream's next operation does its work, but does not end.
   *
   * @throws IllegalStateException if there is none, it is blocked, or it has started already
   */
  public void start(long stream) {
    lock.lock();
    try {
      Progress progress = find(stream);
      Operation operation = nextRunnable(progress);
      if (progress.hasStarted(operation)) {
        throw new IllegalStateException(operation.describe() + " has started already");
      }
      if (operation instanceof RangeOperation) {
        run(progress, operation);
      }
      progress.started = operation;
    } finally {
      lock.unlock();
    }
  }

  /**
   * The stream's next operation ends; it starts first if it has not.
   *
   * @throws IllegalStateException if there is none, or it is blocked
   */
  public void complete(long stream) {
    lock.lock();
    try {
      Progress progress = find(stream);
      complete(progress, nextRunnable(progress));
    } finally {
      lock.unlock();
    }
  }

  /** Completes what it can of one stream, in order, and says how many operations that were. */
  public int completeAll(long stream) {
    lock.lock();
    try {
      return completeAll(find(stream));
    } finally {
      lock.unlock();
    }
  }

  /** Completes all that can be, stream by stream, until nothing more can; says how many. */
  public int completeAll() {
    lock.lock();
    try {
      int total = 0;
      int round;
      do {
        round = 0;
        for (Progress progress : progress()) {
          round += completeAll(progress);
        }
        total += round;
      } while (round > 0);
      return total;
    } finally {
      lock.unlock();
    }
  }

  /** Lets the stream's next operation fault with {@code status} when it starts or completes. */
  public void failNext(long stream, int status) {
    lock.lock();
    try {
      find(stream).planned = Status.fatal(status, "injected by the stepping test", null);
    } finally {
      lock.unlock();
    }
  }

  // --- under the lock -------------------------------------------------------------------------

  private List<Progress> progress() {
    for (HostDevice device : driver.devices()) {
      device.forEachStream(driver.handles(), this::learn);
    }
    known.keySet().removeIf(s -> s.isDestroyed() && s.next() == null);
    return List.copyOf(known.values());
  }

  private void learn(HostStream stream) {
    known.computeIfAbsent(stream, Progress::new);
  }

  private static boolean mayComplete(HostStream stream) {
    Operation next = stream.next();
    return next != null && !isBlocked(stream, next);
  }

  private Progress find(long stream) {
    for (Progress progress : progress()) {
      if (progress.stream.handle() == stream) {
        return progress;
      }
    }
    throw new IllegalArgumentException("there is no stream " + Status.hex(stream));
  }

  private static void list(Progress progress, List<Pending> all) {
    int position = 0;
    for (Operation operation : progress.stream.pending()) {
      all.add(
          new Pending(
              progress.stream.handle(),
              position,
              operation.describe(),
              position == 0 ? state(progress, operation) : State.QUEUED));
      position++;
    }
  }

  private static State state(Progress progress, Operation operation) {
    if (progress.hasStarted(operation)) {
      return State.STARTED;
    }
    return isBlocked(progress.stream, operation) ? State.BLOCKED : State.QUEUED;
  }

  private static boolean isBlocked(HostStream stream, Operation operation) {
    return operation instanceof StreamOperations.Wait wait
        && !wait.isOver(stream)
        && !stream.context().isLost();
  }

  private static Operation nextRunnable(Progress progress) {
    Operation operation = progress.stream.next();
    if (operation == null) {
      throw new IllegalStateException(
          "stream " + Status.hex(progress.stream.handle()) + " has no pending operation");
    }
    if (isBlocked(progress.stream, operation)) {
      throw new IllegalStateException(
          operation.describe() + " is blocked: complete the event's record first");
    }
    return operation;
  }

  private static int completeAll(Progress progress) {
    int count = 0;
    for (Operation o = progress.stream.next();
        o != null && !isBlocked(progress.stream, o);
        o = progress.stream.next()) {
      complete(progress, o);
      count++;
    }
    return count;
  }

  private static void complete(Progress progress, Operation operation) {
    boolean worked = progress.hasStarted(operation) && operation instanceof RangeOperation;
    if (!worked) {
      run(progress, operation);
    }
    progress.started = null;
    progress.stream.finished(operation);
  }

  private static void run(Progress progress, Operation operation) {
    HostStream stream = progress.stream;
    HostContext context = stream.context();
    DriverException planned = progress.planned;
    progress.planned = null;
    if (planned != null) {
      context.lose(planned);
    }
    if (context.isLost()) {
      operation.abandon(stream);
      return;
    }
    try {
      FaultPlan plan = stream.device.faultPlan();
      if (plan != null) {
        plan.beforeOperation(operation);
      }
      operation.run(stream, null);
    } catch (Throwable t) { // whatever a kernel throws is its context's fault, not the test's
      context.lose(Fault.of(t, stream, operation));
      operation.abandon(stream);
    }
  }
}
