package io.fairlead.comm;

import io.fairlead.comm.Entry.Operation;
import io.fairlead.comm.spi.Request;
import io.fairlead.task.Completion;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/**
 * A send that waits for a completion, in the place that was reserved for it at submit.
 *
 * <pre>
 * WAITING → POSTING → POSTED   the gate was done: in the completing thread, or on the loop
 * WAITING → OVER               the gate failed, the send was cancelled, or the communicator closed
 * </pre>
 *
 * <p>{@code state} is the only shared field; who moves it out of WAITING decides. The gate may fire
 * on any thread, a device manager too: then this is a node for the communication thread, which
 * never refuses one, since the place exists.
 */
final class Gated extends LoopNode {
  /** Between two looks whether another thread has posted: a post takes about as long. */
  private static final long PAUSE_NANOS = 1_000;

  private static final int WAITING = 0;
  private static final int POSTING = 1;
  private static final int POSTED = 2;
  private static final int OVER = 3;

  private final CommEngine engine;
  private final Request request;
  private final Operation operation;
  private final GatedSends place;
  private final AtomicInteger state = new AtomicInteger(WAITING);

  /** Who posts. Plain: others may see it late, but only the poster has to find itself. */
  private @Nullable Thread poster;

  Gated(CommEngine engine, Request request, Operation operation, GatedSends place) {
    this.engine = engine;
    this.request = request;
    this.operation = operation;
    this.place = place;
  }

  /** The gate has opened, or never will. On the thread that settled it. */
  void fire(Completion<?> gate) {
    Throwable cause = gate.cause();
    if (cause != null) {
      if (state.compareAndSet(WAITING, OVER)) {
        place.gateFailed(this, request, cause);
      }
      return;
    }
    switch (engine.way(operation)) {
      case INLINE -> run();
      case SHIFT -> {
        engine.counters.shifted.increment();
        engine.loop().push(this);
      }
      case REFUSE -> throw new AssertionError("only progress is refused");
    }
  }

  @Override
  void run() {
    if (!state.compareAndSet(WAITING, POSTING)) {
      return;
    }
    poster = Thread.currentThread();
    place.opened(this);
    engine.enter(request);
    state.set(POSTED);
  }

  @Override
  void late() {
    if (revoke()) {
      place.opened(this);
      request.failed(CommEngine.over());
    }
  }

  /** Ends it before it was posted; the caller then settles the request. */
  boolean revoke() {
    return state.compareAndSet(WAITING, OVER);
  }

  /** Cancelled: true if it was not posted and will not be; else waits till it is posted. */
  boolean cancel() {
    if (revoke()) {
      place.opened(this);
      return true;
    }
    // What the post itself completes may cancel the send, and must not wait for the post.
    while (state.get() == POSTING && poster != Thread.currentThread()) {
      LockSupport.parkNanos(PAUSE_NANOS);
    }
    return false;
  }

  Request request() {
    return request;
  }
}
