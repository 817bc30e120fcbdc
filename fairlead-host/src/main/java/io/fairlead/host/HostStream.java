package io.fairlead.host;

import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.DriverException;
import io.fairlead.device.spi.StreamListener;
import io.fairlead.host.pool.StreamCache;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A stream: a queue that any thread may append to, and one owner at a time that runs it.
 *
 * <pre>
 *   IDLE --enqueue--> SCHEDULED --nothing left--> IDLE
 *                     SCHEDULED --waits for an event--> BLOCKED --the event--> SCHEDULED
 * </pre>
 *
 * SCHEDULED covers "in the ready queue" and "owned by a worker": whoever moves the stream there
 * puts it into the ready queue, and whoever takes it out owns it. An owner may also leave it to the
 * workers that share a kernel; the last of them owns it then.
 *
 * <p>The queue is an intrusive list (Vyukov's): a producer swaps the tail, then links. Between the
 * two, the owner sees an end of the queue that is not one; it may go idle then, because the
 * producer looks at the state after linking.
 *
 * <table>
 * <caption>Shared state</caption>
 * <tr><th>field</th><th>written by</th><th>read by</th><th>mode</th></tr>
 * <tr><td>state</td><td>producers, owner, event's owner</td><td>all</td><td>volatile: the link
 *     before it and the look after it must not swap</td></tr>
 * <tr><td>tail</td><td>producers</td><td>producers</td><td>get and set</td></tr>
 * <tr><td>head, lastWorker</td><td>owner</td><td>owner; wakers read lastWorker as a hint</td>
 *     <td>plain: ownership passes through state and the ready queue</td></tr>
 * <tr><td>reached</td><td>owner</td><td>any</td><td>release / acquire: whoever sees the value must
 *     see what the work before it wrote</td></tr>
 * <tr><td>signalled</td><td>callers of signal</td><td>the same</td><td>volatile; only a check</td></tr>
 * <tr><td>capture</td><td>who begins and who ends it</td><td>callers that enqueue</td>
 *     <td>compare and set; nobody enqueues while it begins</td></tr>
 * <tr><td>destroyed</td><td>the first streamDestroy</td><td>every call</td>
 *     <td>compare and set: only one destroys</td></tr>
 * <tr><td>lostTold</td><td>who loses the context, owner</td><td>the same</td><td>compare and set:
 *     a listener hears of it once</td></tr>
 * </table>
 */
final class HostStream extends HandleTable.Entry {
  private static final Logger LOG = System.getLogger("io.fairlead.host");

  private static final int IDLE = 0;
  private static final int SCHEDULED = 1;
  private static final int BLOCKED = 2;

  private static final VarHandle STATE;
  private static final VarHandle TAIL;
  private static final VarHandle REACHED;
  private static final VarHandle LOST_TOLD;
  private static final VarHandle DESTROYED;
  private static final VarHandle CAPTURE;

  static {
    try {
      MethodHandles.Lookup lookup = MethodHandles.lookup();
      STATE = lookup.findVarHandle(HostStream.class, "state", int.class);
      TAIL = lookup.findVarHandle(HostStream.class, "tail", Operation.class);
      REACHED = lookup.findVarHandle(HostStream.class, "reached", long.class);
      DESTROYED = lookup.findVarHandle(HostStream.class, "destroyed", boolean.class);
      CAPTURE = lookup.findVarHandle(HostStream.class, "capture", HostGraph.class);
      LOST_TOLD = lookup.findVarHandle(HostStream.class, "lostTold", boolean.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private final HostContext context;
  final HostDevice device;
  final int priority;
  final StreamCache frees = new StreamCache();
  private final @Nullable StreamListener listener;

  private Operation head = new StreamOperations.Start();

  @SuppressWarnings("unused") // through TAIL
  private volatile Operation tail = head;

  private volatile int state = IDLE;

  @SuppressWarnings("unused") // through REACHED
  private volatile long reached;

  private volatile long signalled;

  @SuppressWarnings("unused") // through DESTROYED
  private volatile boolean destroyed;

  @SuppressWarnings("unused") // through LOST_TOLD
  private volatile boolean lostTold;

  private volatile @Nullable HostGraph capture;

  /** The worker that ran it last: its caches are warm, so it is woken first. */
  int lastWorker;

  HostStream(HostContext context, int priority, @Nullable StreamListener listener) {
    this.context = context;
    this.device = context.device;
    this.priority = priority;
    this.listener = listener;
  }

  // --- any thread -----------------------------------------------------------------------------

  void enqueue(Operation operation) {
    Operation previous = (Operation) TAIL.getAndSet(this, operation);
    Operation.NEXT.setVolatile(previous, operation);
    if (state == IDLE && !device.isStepped() && STATE.compareAndSet(this, IDLE, SCHEDULED)) {
      context.streamBusy();
      device.ready(this);
    }
  }

  long reached() {
    return (long) REACHED.getAcquire(this);
  }

  /** Refuses a value below an earlier one. */
  void checkSignal(long value) {
    long before = signalled;
    if (value < before) {
      throw Status.invalidValue("signals of a stream must not fall: " + value + " after " + before);
    }
    signalled = value;
  }

  boolean isDestroyed() {
    return destroyed;
  }

  /** From now on the handle is stale; the entry stays until the work before has ended. */
  boolean destroy() {
    endCapture();
    return DESTROYED.compareAndSet(this, false, true);
  }

  // --- capture --------------------------------------------------------------------------------

  /** Enqueues an operation made by the recipe, or writes the recipe down; null is nothing. */
  void take(@Nullable Recipe recipe) {
    if (recipe == null) {
      return;
    }
    Operation operation = recipe.make(this); // also where it is not run: it may be refused
    HostGraph writing = capture;
    if (writing == null) {
      enqueue(operation);
    } else {
      writing.add(recipe);
    }
  }

  @Nullable HostGraph capturing() {
    return capture;
  }

  /** False if it is captured already. */
  boolean capture(HostGraph graph) {
    return CAPTURE.compareAndSet(this, null, graph);
  }

  /** What was captured; null if nothing was. */
  @Nullable HostGraph endCapture() {
    return (HostGraph) CAPTURE.getAndSet(this, null);
  }

  void checkNotCaptured(DriverCall call) {
    if (capture != null) {
      throw Status.refused(
          DriverException.CAPTURE_UNSUPPORTED,
          call
              + " is not possible on stream "
              + Status.hex(handle())
              + " while it is being captured; end the capture first");
    }
  }

  /** The event came, or waiting is over for another reason. Spurious calls do no harm. */
  void stopWaiting() {
    if (state == BLOCKED && STATE.compareAndSet(this, BLOCKED, SCHEDULED)) {
      device.ready(this);
    }
  }

  void contextLost() {
    stopWaiting();
    if (listener != null && !destroyed && LOST_TOLD.compareAndSet(this, false, true)) {
      try {
        listener.lost();
      } catch (RuntimeException | Error e) {
        reportListener(e);
      }
    }
  }

  // --- the owner ------------------------------------------------------------------------------

  /** The operation to run now, or null if nothing is linked. */
  @Nullable Operation next() {
    return head.next();
  }

  /** The operation has ended: the one behind it is next. */
  void finished(Operation operation) {
    Operation before = head;
    head = operation;
    // Plain, and cut so that one old node does not keep a chain of young ones from the collector.
    Operation.NEXT.set(before, null);
    operation.drop();
  }

  /** Gives the stream up. False if there is work again, and the caller still owns it. */
  boolean goIdle() {
    state = IDLE;
    if (head.next() != null && STATE.compareAndSet(this, IDLE, SCHEDULED)) {
      return false;
    }
    context.streamIdle();
    return true;
  }

  /** To be called before the stream becomes known to the event's owner. */
  void blocked() {
    state = BLOCKED;
  }

  void signal(long value) {
    REACHED.setRelease(this, value);
    if (listener != null) {
      try {
        listener.reached(value);
      } catch (RuntimeException | Error e) {
        reportListener(e);
      }
    }
  }

  private static void reportListener(Throwable thrown) {
    LOG.log(Level.ERROR, "A stream listener threw; it must not. The stream goes on.", thrown);
  }

  // --- stepped mode: under the stepper's lock --------------------------------------------------

  List<Operation> pending() {
    List<Operation> pending = new ArrayList<>();
    for (Operation o = head.next(); o != null; o = o.next()) {
      pending.add(o);
    }
    return pending;
  }

  void abandonAll() {
    for (Operation o = next(); o != null; o = next()) {
      o.abandon(this);
      finished(o);
    }
  }

  @Override
  HandleTable.Kind kind() {
    return HandleTable.Kind.STREAM;
  }

  @Override
  HostContext context() {
    return context;
  }
}
