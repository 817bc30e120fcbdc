package io.fairlead.task;

import java.lang.System.Logger.Level;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;

/**
 * A poll source that several threads would look at, one at a time.
 *
 * <pre>
 * FREE → BUSY → FREE   one looks; others that come meanwhile go on without
 *      → ENDED         withdrawn: nobody looks any more
 *
 * field | writer           | reader | mode, guard
 * state | whoever looks, who withdraws | same | compare-and-set; the write of FREE publishes what
 *       |                  |        | the source keeps in plain fields
 * </pre>
 */
final class Polled {
  private static final int FREE = 0;
  private static final int BUSY = 1;
  private static final int ENDED = 2;
  private static final System.Logger LOG = System.getLogger(Carriers.class.getName());
  private static final VarHandle STATE;

  static {
    try {
      STATE = MethodHandles.lookup().findVarHandle(Polled.class, "state", int.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  final PollSource source;

  /** Longest sleep between two polls while it has something pending. */
  final long napNanosMax;

  private volatile int state;

  Polled(PollSource source, long napNanosMax) {
    this.source = source;
    this.napNanosMax = napNanosMax;
  }

  /** Looks, unless another thread does; what is found counts. */
  @SuppressWarnings("CatchingUnchecked") // a stranger's source must not stop the others
  int poll() {
    if (!take()) {
      return 0;
    }
    try {
      return source.poll();
    } catch (Throwable thrown) {
      LOG.log(Level.ERROR, "poll source " + source + " threw", thrown);
      return 0;
    } finally {
      give();
    }
  }

  /** Whether there can be anything to find; true while another thread looks. */
  @SuppressWarnings("CatchingUnchecked") // a stranger's source must not stop the others
  boolean hasPending() {
    if (!take()) {
      return state != ENDED;
    }
    try {
      return source.hasPending();
    } catch (Throwable thrown) {
      LOG.log(Level.ERROR, "poll source " + source + " threw", thrown);
      return true; // it may have something, so it must not be slept over
    } finally {
      give();
    }
  }

  /** Whether a poll might find something now; false while another thread looks, which sees it. */
  @SuppressWarnings("CatchingUnchecked") // a stranger's source must not stop the others
  boolean mayFind() {
    if (!take()) {
      return false;
    }
    try {
      return source.mayFind();
    } catch (Throwable thrown) {
      return true; // a poll will say it
    } finally {
      give();
    }
  }

  /** Nobody looks from now on, and when this returns nobody does. Not from within a poll. */
  void end() {
    for (; ; ) {
      int seen = state;
      if (seen == ENDED || (seen == FREE && STATE.compareAndSet(this, FREE, ENDED))) {
        return;
      }
      Thread.onSpinWait(); // a poll never blocks
    }
  }

  private boolean take() {
    return state == FREE && STATE.compareAndSet(this, FREE, BUSY);
  }

  private void give() {
    state = FREE;
  }
}
