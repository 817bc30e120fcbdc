package io.fairlead.device;

import io.fairlead.device.spi.Capability;
import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.DriverException;
import io.fairlead.task.Engine;
import io.fairlead.task.EngineFactory;
import io.fairlead.task.EngineLimits;
import io.fairlead.task.TaskBody;
import io.fairlead.task.TaskRuntime;
import io.fairlead.task.ThreadRule;
import java.util.concurrent.locks.ReentrantLock;
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
 * <pre>
 * field  | writer           | reader | mode, guard
 * engine | the first caller | any    | volatile; written under lock
 * closed | close            | opener | lock
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

  private final TaskRuntime tasks;
  private final DeviceContext context;
  private final Driver driver;
  private final boolean hasDefaultStream;
  private final ReentrantLock lock = new ReentrantLock();
  private volatile @Nullable Engine<Seat> engine;
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

  /** Lets what runs return, and ends the threads. Waits for it. Idempotent. */
  @Override
  public void close() {
    Engine<Seat> known;
    lock.lock();
    try {
      closed = true;
      known = engine;
    } finally {
      lock.unlock();
    }
    if (known != null) {
      known.close();
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
        try {
          end(stream, thrown);
        } finally {
          ordered.run();
        }
      }
    }

    private void begin(DeviceStream stream) {
      bind(stream);
      if (hasDefaultStream) {
        stream.core().beforeDefaultStream();
      }
    }

    /** What the body threw is the cause; what goes wrong afterwards may well come of it. */
    private void end(DeviceStream stream, @Nullable Throwable thrown) {
      if (!hasDefaultStream) {
        return;
      }
      try {
        bind(stream); // the body may have left another context current
        stream.core().afterDefaultStream(event);
      } catch (RuntimeException e) {
        if (thrown == null) {
          throw e;
        }
        thrown.addSuppressed(e);
      }
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
