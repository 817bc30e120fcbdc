package io.fairlead.comm;

import io.fairlead.comm.spi.ThreadLevel;
import io.fairlead.task.Owner;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.ArrayDeque;
import java.util.Queue;
import java.util.concurrent.locks.ReentrantLock;
import org.jspecify.annotations.Nullable;

/**
 * The turn inside a transport, and what ended while somebody had it.
 *
 * <ul>
 *   <li>MULTIPLE: nobody takes turns, and what ends is told at once.
 *   <li>SERIALIZED: a lock. The transport never suspends a task that is inside ({@link
 *       io.fairlead.comm.spi.Transport}), so whoever waits for it waits for one call. Tasks on the
 *       communication thread and what else runs there both come for it: see {@link Owner#lock}.
 *   <li>FUNNELED and SINGLE: only the communication thread, and tasks on it, ever come here, one
 *       after the other; the turn only says that somebody is inside.
 * </ul>
 *
 * <p>Below MULTIPLE a transport must not be entered from its own callbacks. So what it says has
 * ended is kept until the turn is given back, and told then, by the thread that had it.
 *
 * <table>
 *   <caption>fields</caption>
 *   <tr><th>field</th><th>writer</th><th>reader</th><th>mode</th></tr>
 *   <tr><td>ended</td><td>who has the turn</td><td>same</td><td>the turn</td></tr>
 *   <tr><td>inside</td><td>below SERIALIZED: who has the turn</td><td>any</td><td>opaque: each
 *       thread only has to find itself</td></tr>
 * </table>
 */
final class Turn {
  private static final VarHandle INSIDE;

  static {
    try {
      INSIDE = MethodHandles.lookup().findVarHandle(Turn.class, "inside", Thread.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private final boolean multiple;
  private final @Nullable ReentrantLock lock;
  private final Queue<Ending> ended = new ArrayDeque<>();

  @SuppressWarnings("unused") // through INSIDE
  private @Nullable Thread inside;

  Turn(ThreadLevel level) {
    this.multiple = level == ThreadLevel.MULTIPLE;
    this.lock = level == ThreadLevel.SERIALIZED ? new ReentrantLock() : null;
  }

  /** Before a call. Waits for the call of another thread, if need be. */
  void take() {
    if (multiple) {
      return;
    }
    if (lock == null) {
      INSIDE.setOpaque(this, Thread.currentThread());
    } else {
      Owner.lock(lock);
    }
  }

  /** As {@link #take}, unless somebody else is inside. */
  boolean tryTake() {
    if (lock != null && !lock.tryLock()) {
      return false;
    }
    if (lock == null) {
      take();
    }
    return true;
  }

  /** After the call: gives the turn back and tells what ended, also before. */
  void give() {
    if (multiple) {
      return;
    }
    for (; ; ) {
      Ending first = ended.poll();
      boolean more = !ended.isEmpty();
      leave();
      if (first != null) {
        first.tell();
      }
      if (!more) {
        return;
      }
      take();
    }
  }

  private void leave() {
    if (lock != null) {
      lock.unlock();
    } else {
      INSIDE.setOpaque(this, null);
    }
  }

  /** Whether somebody waits for the turn. A hint; by who has it. */
  boolean isWanted() {
    return lock != null && lock.hasQueuedThreads();
  }

  /** Whether the caller is inside; never so at MULTIPLE. */
  boolean isMine() {
    return lock != null
        ? lock.isHeldByCurrentThread()
        : INSIDE.getOpaque(this) == Thread.currentThread();
  }

  /** Keeps what has ended until the turn is given back. By who has it. */
  void keep(Ending ending) {
    ended.add(ending);
  }
}
