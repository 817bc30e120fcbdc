package io.fairlead.comm;

import io.fairlead.comm.Entry.Operation;
import io.fairlead.comm.spi.Request;
import io.fairlead.task.Completion;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/**
 * A send that waits for a completion, or behind one that does, in the place that was reserved for
 * it at submit.
 *
 * <pre>
 * WAITING → READY              the gate is done, or there is none
 * READY → POSTING → POSTED     it was the first of its line: in the completing thread, or on the
 *                              loop, with the turn
 * WAITING, READY → OVER        the gate failed, the send was cancelled, or the communicator closed
 * </pre>
 *
 * <p>{@code state} is the only shared field; who moves it on decides. The gate may fire on any
 * thread, a device manager too: then this is a node for the communication thread, which never
 * refuses one, since the place exists. Who moves it out of WAITING calls for whoever stands behind
 * it, so it is queued once at most.
 */
final class Gated extends LoopNode {
  /** Between two looks whether another thread has posted: a post takes about as long. */
  private static final long PAUSE_NANOS = 1_000;

  private static final int WAITING = 0;
  private static final int READY = 1;
  private static final int POSTING = 2;
  private static final int POSTED = 3;
  private static final int OVER = 4;

  /** Null once it is posted or over. Who moves the state there takes it. */
  private @Nullable Request request;

  private final Operation operation;
  private final GatedSends place;
  private final Line line;
  private final AtomicInteger state;

  /**
   * Whether its sender does not enter: then what he sent before may still be on its way to the
   * loop, and this must not get there by another way, wherever its gate opens.
   */
  final boolean queues;

  /** Who was sent before it; null if it is the first, or has left. As {@link #behind}. */
  @Nullable Gated before;

  /** Who was sent after it. Under the lock of {@link GatedSends}. */
  @Nullable Gated behind;

  /**
   * What hangs on the gate for it, and is taken off when it is over before the gate opens.
   * Volatile: either who ends it sees this, or who sets this sees that it is over.
   */
  private volatile @Nullable Completion<?> hook;

  /** Who posts. Plain: others may see it late, but only the poster has to find itself. */
  private @Nullable Thread poster;

  Gated(
      Request request,
      Operation operation,
      GatedSends place,
      Line line,
      boolean queues,
      boolean open) {
    this.request = request;
    this.operation = operation;
    this.place = place;
    this.line = line;
    this.queues = queues;
    this.state = new AtomicInteger(open ? READY : WAITING);
  }

  /** The gate has opened, or never will. On the thread that settled it. */
  void fire(Completion<?> gate) {
    Throwable cause = gate.cause();
    if (state.compareAndSet(WAITING, cause == null ? READY : OVER)) {
      if (cause == null) {
        call();
      } else {
        place.gateFailed(this, take(), cause);
        leave();
      }
    }
  }

  /** Waits for the gate. By who added it, once. */
  void waitFor(Completion<?> gate) {
    Completion<?> made = gate.thenApply(done -> "open");
    hook = made;
    made.onDone(this::fire);
    if (state.get() == OVER) {
      made.cancel();
    }
  }

  /** It is over before its gate opened, which may never do so: nothing of it stays there. */
  private void unhook() {
    Completion<?> known = hook;
    if (known != null) {
      known.cancel();
    }
  }

  /** It is over: those behind it wait for it no more. */
  private void leave() {
    if (!place.passes(this)) {
      call();
    }
  }

  /** As {@link Line#call}. */
  void call() {
    line.call(this, operation);
  }

  @Override
  void run() {
    line.post(true);
  }

  @Override
  void late() {
    if (revoke()) {
      place.opened(this);
      take().failed(CommEngine.over());
    }
  }

  Line line() {
    return line;
  }

  boolean isWaiting() {
    return state.get() == WAITING;
  }

  /** Hands it to the transport, with the turn, unless it is over. */
  void post(CommEngine engine) {
    if (!state.compareAndSet(READY, POSTING)) {
      return;
    }
    poster = Thread.currentThread();
    place.opened(this);
    engine.hand(take());
    state.set(POSTED);
  }

  /** Ends it before it was posted; the caller then settles the request that it takes. */
  boolean revoke() {
    if (state.compareAndSet(WAITING, OVER)) {
      unhook();
      return true;
    }
    return state.compareAndSet(READY, OVER);
  }

  /** Cancelled: true if it was not posted and will not be; else waits till it is posted. */
  boolean cancel() {
    if (state.compareAndSet(WAITING, OVER)) {
      request = null;
      place.opened(this);
      unhook();
      leave();
      return true;
    }
    if (state.compareAndSet(READY, OVER)) {
      request = null;
      place.opened(this);
      boolean _ = place.passes(this); // false: it is the first, and whoever posts goes past it
      return true;
    }
    // What the post itself completes may cancel the send, and must not wait for the post.
    while (state.get() == POSTING && poster != Thread.currentThread()) {
      LockSupport.parkNanos(PAUSE_NANOS);
    }
    return false;
  }

  /** What it stood for, of which it lets go: a gate that never opens keeps this. */
  Request take() {
    Request taken = Objects.requireNonNull(request);
    request = null;
    return taken;
  }
}
