package io.fairlead.task;

import java.util.concurrent.locks.ReentrantLock;
import org.jspecify.annotations.Nullable;

/**
 * A key under which each task carries one value: its stream of a device, say. Hooks are called as
 * tasks begin, join and end, so that the value can follow the structure.
 *
 * <p>Values are used by the task's own thread only. The ROOT task is shared by all threads that
 * never entered: for it {@link #initial} runs under a lock of this key, once, and {@link #fork} and
 * {@link #join} with it as the parent may be called by several threads at once.
 *
 * @param <T> the value
 */
public abstract class TaskAttachment<T> {
  /** Guards the making of ROOT's value of this key. Taken first; initial() runs under it. */
  final ReentrantLock rootLock = new ReentrantLock();

  /** For subclasses. */
  protected TaskAttachment() {}

  /**
   * Makes the value when the task first asks for it. On the task's thread; may wait. Null: none,
   * and the next get asks again.
   */
  protected @Nullable T initial(Task task) {
    return null;
  }

  /**
   * Makes the child's first value from its parent's. On the forker's thread, before the child
   * starts; called only where the parent has a value. Null: the child begins without.
   */
  protected @Nullable T fork(Task parent, @Nullable T parentValue, Task child) {
    return null;
  }

  /**
   * The child has ended and is being joined. On the joiner's thread, before join returns; called
   * only where the child had a value, also if it failed.
   */
  protected void join(Task parent, Task child, T childValue) {}

  /**
   * The task's body has ended, or failed. On its thread, before it counts as ended. Cancellation
   * may be pending, so wait with {@link Completion#awaitUninterruptibly} if at all. Never called
   * for ROOT, which does not end.
   */
  protected void end(Task task, T value) {}

  /**
   * Drops ROOT's value of this key, without any hook. For whoever owns the key, when it closes:
   * else ROOT would hold the value for ever. Any thread.
   *
   * @return the value it had, or null
   */
  protected final @Nullable T forgetRoot() {
    return Task.rootForget(this);
  }
}
