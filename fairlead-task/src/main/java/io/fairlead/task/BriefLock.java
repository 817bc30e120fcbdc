package io.fairlead.task;

import java.util.concurrent.locks.ReentrantLock;
import org.jspecify.annotations.Nullable;

/**
 * A lock that is held for moments, and that may be taken anywhere: by tasks on any carrier, by
 * affine tasks of an owner ({@link Owner#affine}), and by the commands, poll sources and handlers
 * of that owner.
 *
 * <p>With a plain {@link ReentrantLock} the last two hang together: an affine task that waits in
 * its queue parks, a command that comes for it next waits behind that task, and when the lock is
 * given back it is the task that is woken, which can only go on once the command has left the
 * thread. So it is with monitors, {@code synchronized}, too. Here nobody on an owner that has
 * affine tasks stands in the queue; they look until the lock is theirs, and a task keeps the thread
 * meanwhile. Nor does a callback that runs within a poll, since the task before it in the queue
 * might need that carrier; nor a task that only one carrier may run.
 *
 * <p><b>What may be done while holding it</b>: nothing that suspends a task, other than waiting for
 * another lock of this kind: a command that comes for it would wait for a task that waits for the
 * command's thread. Waiting on a condition gives it up, but takes its place in the queue
 * afterwards: no affine task may do that.
 */
public final class BriefLock extends ReentrantLock {
  private static final long serialVersionUID = 1L;

  /** A free lock, for whoever comes first. */
  public BriefLock() {}

  /** Takes the lock, waiting for it if need be. */
  @Override
  public void lock() {
    if (!tryLock()) {
      Owner.waitForInner(this);
    }
  }

  /** In the queue, as any lock does it: where that is safe. */
  void queue() {
    super.lock();
  }

  /** Who holds it. A glance. */
  @Nullable Thread holder() {
    return getOwner();
  }
}
