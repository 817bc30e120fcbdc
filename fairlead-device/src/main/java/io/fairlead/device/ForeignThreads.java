package io.fairlead.device;

import io.fairlead.device.spi.Capability;
import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.DriverException;
import io.fairlead.fault.Mutant;
import io.fairlead.task.BriefLock;
import io.fairlead.task.Completion;
import io.fairlead.task.Engine;
import io.fairlead.task.EngineFactory;
import io.fairlead.task.EngineLimits;
import io.fairlead.task.TaskBody;
import io.fairlead.task.TaskRuntime;
import io.fairlead.task.ThreadRule;
import java.lang.System.Logger.Level;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import org.jspecify.annotations.Nullable;

/**
 * The threads on which code runs that knows no streams. Each is an instance of an engine that is
 * entered by its own thread only, so who is next, cancellation and the end are the engine's.
 *
 * <p>A call goes: make the primary context current → the default stream waits for the caller's
 * stream → body → make the context current again, since the body may have left another one → the
 * caller's stream waits for the default stream → what was current before is restored.
 *
 * <p>The threads are platform threads, so what is current stays while the body waits.
 *
 * <p>Where the second order cannot be made, the caller is told, and a {@link LateOrder} keeps what
 * the body's work uses from being used by others. The owner tries again, each time later.
 *
 * <pre>
 * field  | writer           | reader | mode, guard
 * engine | the first caller | any    | volatile; written under lock
 * closed | close            | opener | lock
 * late   | seats, owner     | any    | concurrent
 * aside  | the owner        | owner  | plain
 * </pre>
 *
 * Lock order: {@code lock}, then what the runtime takes to start threads; never under the turn of a
 * stream.
 */
final class ForeignThreads implements AutoCloseable {
  /**
   * On the device the default stream puts all foreign work in one row, so more threads only let the
   * host parts of a few libraries overlap.
   */
  static final int THREADS = 4;

  private static final System.Logger LOG = System.getLogger("io.fairlead.device");

  private final TaskRuntime tasks;
  private final DeviceContext context;
  private final Driver driver;
  private final boolean hasDefaultStream;
  private final BriefLock lock = new BriefLock();
  private final Set<LateOrder> late = ConcurrentHashMap.newKeySet();
  private volatile @Nullable Engine<Seat> engine;
  private @Nullable DeviceStream aside;
  private boolean closed;

  ForeignThreads(TaskRuntime tasks, DeviceContext context) {
    this.tasks = tasks;
    this.context = context;
    this.driver = context.driver();
    this.hasDefaultStream = context.capabilities().contains(Capability.DEFAULT_STREAM);
  }

  /** See {@link DeviceContext#foreign}. */
  <T extends @Nullable Object> T call(DeviceStream stream, TaskBody<T> body, Runnable ordered) {
    if (!hasDefaultStream) {
      stream.reached().await();
    }
    return open().call(0, seat -> seat.run(stream, body, ordered));
  }

  private Engine<Seat> open() {
    Engine<Seat> known = engine;
    if (known != null) {
      return known;
    }
    lock.lock();
    try {
      if (closed) {
        throw context.closedNow("foreign code");
      }
      known = engine;
      if (known == null) {
        known =
            tasks.engine(
                "foreign-" + context.ordinal(),
                ThreadRule.OWNER_ONLY,
                new Seats(),
                EngineLimits.of(THREADS));
        engine = known;
      }
      return known;
    } finally {
      lock.unlock();
    }
  }

  /**
   * Lets what runs return, and ends the threads; waits for it, and for a while for work that
   * nothing comes after yet. Idempotent.
   */
  @Override
  public void close() {
    boolean first;
    Engine<Seat> known;
    lock.lock();
    try {
      first = !closed;
      closed = true;
      known = engine;
    } finally {
      lock.unlock();
    }
    if (known != null) {
      known.close();
    }
    if (first && !late.isEmpty()) {
      CountDownLatch over = new CountDownLatch(1);
      Completion.all(late.stream().map(LateOrder::over).toList()).onDone(_ -> over.countDown());
      DeviceContext.awaitUntil(over, System.nanoTime() + context.config().closeNanos());
    }
  }

  // --- orders that come late: the owner's thread, unless said otherwise -------------------------

  /** Any thread. */
  private void comesLate(LateOrder order) {
    late.add(order);
    order.stream.owe(order);
    tryLater(order);
  }

  private void tryLater(LateOrder order) {
    context.errandLater(order.nextNap(), () -> tryAgain(order));
  }

  private void tryAgain(LateOrder order) {
    if (order.isSettled() || !late.contains(order)) {
      return;
    }
    if (context.isLost()) {
      settle(order);
    } else if (!order.stream.triesLate() && (order.stream.takesOrders() || !waitsAside(order))) {
      tryLater(order);
    }
  }

  /** Its stream takes no more, so its end is waited for, on a stream of our own. */
  private boolean waitsAside(LateOrder order) {
    try {
      DeviceStream mine = aside();
      mine.core().afterDefaultStream(order.event);
      context.afterWork(List.of(mine.mark()), () -> settle(order));
      return true;
    } catch (DeviceException | IllegalStateException e) {
      return false; // the driver refuses still, or the context is lost or closing
    }
  }

  private DeviceStream aside() {
    DeviceStream known = aside;
    if (known == null) {
      known = context.createPooled(0);
      aside = known;
    }
    return known;
  }

  /** What it kept is let go. Any thread, also under a stream's turn. */
  void settle(LateOrder order) {
    if (order.settle()) {
      context.errand(() -> end(order));
    }
  }

  private void end(LateOrder order) {
    forget(order);
    order.end();
  }

  private void forget(LateOrder order) {
    if (late.remove(order)) {
      context.quietly(
          DriverCall.EVENT_DESTROY, "destroy an event", () -> driver.eventDestroy(order.event));
    }
  }

  /** The context ends: nobody will know any more where that work ends. */
  void giveUp() {
    for (LateOrder order : late) {
      LOG.log(
          Level.WARNING,
          context
              + " is closed, and nobody knows whether foreign work behind stream "
              + order.stream.id
              + " has ended: what it uses stays lent. End captures of blocking streams before");
      forget(order);
    }
  }

  private final class Seats implements EngineFactory<Seat> {
    @Override
    public Seat create() {
      return new Seat();
    }

    @Override
    public void destroy(Seat seat) {
      seat.close();
    }
  }

  /** What one thread has: the event that its default stream is recorded with. Its thread only. */
  private final class Seat {
    private long event;

    private <T extends @Nullable Object> T run(
        DeviceStream stream, TaskBody<T> body, Runnable ordered) throws Exception {
      long previous = driver.current();
      try {
        begin(stream);
        return between(stream, body, ordered);
      } finally {
        driver.makeCurrent(previous);
      }
    }

    @SuppressWarnings("NullAway") // what the body returns is what T says
    private <T extends @Nullable Object> T between(
        DeviceStream stream, TaskBody<T> body, Runnable ordered) throws Exception {
      Throwable thrown = null;
      try {
        return body.run();
      } catch (Throwable e) {
        thrown = e;
        throw e;
      } finally {
        end(stream, thrown, ordered);
      }
    }

    private void begin(DeviceStream stream) {
      bind(stream);
      if (hasDefaultStream) {
        stream.core().beforeDefaultStream();
      }
    }

    /** What the body threw is the cause; what goes wrong afterwards may well come of it. */
    private void end(DeviceStream stream, @Nullable Throwable thrown, Runnable ordered) {
      RuntimeException refused = hasDefaultStream ? order(stream) : null;
      if (refused == null || context.isLost() || Mutant.on("foreign.late.forgotten")) {
        ordered.run();
      } else {
        LateOrder order = new LateOrder(stream.core(), event, ordered);
        event = 0; // it is the order's now
        comesLate(order);
        refused = late(refused, stream.id());
      }
      if (refused == null) {
        return;
      }
      if (thrown == null) {
        throw refused;
      }
      thrown.addSuppressed(refused);
    }

    private @Nullable RuntimeException order(DeviceStream stream) {
      try {
        bind(stream); // the body may have left another context current
        stream.core().afterDefaultStream(event);
        return null;
      } catch (RuntimeException e) {
        return e;
      }
    }

    private RuntimeException late(RuntimeException refused, long stream) {
      return refused instanceof DeviceException e
          ? context.because(
              e,
              "foreign work",
              stream,
              ": the body has returned, but nobody can say now where its work ends, so what it uses"
                  + " stays lent, and this stream waits for it; it is tried again. A body ends the"
                  + " captures of blocking streams that it begins. The driver: ")
          : refused;
    }

    private void bind(DeviceStream stream) {
      try {
        driver.makeCurrent(context.nativeContext());
        if (hasDefaultStream && event == 0) {
          event = driver.eventCreate(context.nativeContext());
        }
      } catch (DriverException e) {
        throw context.translate(e, "foreign code", stream.id());
      }
    }

    private void close() {
      if (event != 0) {
        context.quietly(
            DriverCall.EVENT_DESTROY, "destroy an event", () -> driver.eventDestroy(event));
      }
    }
  }
}
