package io.fairlead.task;

import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;

/**
 * The lock of an engine that takes one call at a time: held as long as that takes, also over waits
 * of ours in its body.
 *
 * <p>Callers wait in the lock's queue, but for those on an owner that has affine tasks: one such
 * task at the head of the queue could take the lock on the owner's thread only, which may be
 * waiting in a command behind it. These ask instead: they park beside the queue, and try again when
 * they are woken.
 *
 * <pre>
 * who asks:      enters asking; takes the lock? → leaves asking, goes on;   else parks, and again
 * who gives up:  frees the lock; somebody asks? → wakes the oldest
 * </pre>
 *
 * Each side writes, then reads what the other writes: one sees the other. Who is woken and finds
 * the lock taken stays where it is, and whoever took it wakes him. A task that is woken may find no
 * thread to go on with, while a command waits here on that; so the next one is woken too, up to the
 * first that is no task.
 */
final class GateLock {
  private final ReentrantLock lock = new ReentrantLock();
  private final Queue<Thread> asking = new ConcurrentLinkedQueue<>();

  /** Takes it, waiting if need be. Whoever has it may need the turn of the caller to go on. */
  void lock() {
    if (lock.tryLock()) {
      return;
    }
    Execution here = Execution.current();
    if (here == null) {
      take();
      return;
    }
    here.expose();
    try {
      take();
    } finally {
      here.cover();
    }
  }

  private void take() {
    if (Owner.isAmongAffineTasks()) {
      ask();
    } else {
      lock.lock();
    }
  }

  private void ask() {
    Thread self = Thread.currentThread();
    boolean interrupted = false;
    asking.add(self);
    while (!lock.tryLock()) {
      LockSupport.park(this);
      interrupted |= Thread.interrupted(); // cleared, else parking would return at once
    }
    asking.remove(self);
    if (interrupted) {
      self.interrupt();
    }
  }

  void unlock() {
    lock.unlock();
    for (Thread waits : asking) {
      LockSupport.unpark(waits);
      if (!waits.isVirtual()) {
        return;
      }
    }
  }
}
