package io.fairlead.task;

import org.jspecify.annotations.Nullable;

/**
 * A value that tasks inherit: a child begins with what its parent had when it forked. It follows
 * the task, not the thread, and is read by the task itself.
 *
 * @param <T> the value
 */
public final class TaskLocal<T> {
  private final T initial;

  private final TaskAttachment<T> key =
      new TaskAttachment<>() {
        @Override
        protected @Nullable T fork(Task parent, @Nullable T parentValue, Task child) {
          return parentValue;
        }
      };

  private TaskLocal(T initial) {
    this.initial = initial;
  }

  /** A local that is {@code initial} in every task that nobody set it in. */
  public static <T> TaskLocal<T> of(T initial) {
    return new TaskLocal<>(initial);
  }

  /** The current task's value. Any thread; never blocks. */
  public T get() {
    T value = Task.current().get(key);
    return value == null ? initial : value;
  }

  /**
   * Runs the body with this value in the current task, and puts back what was there before.
   * Children forked meanwhile inherit it.
   *
   * @throws IllegalStateException on a thread that has not entered: ROOT is shared by all of those,
   *     so call enter first
   */
  public <R extends @Nullable Object> R where(T value, TaskBody<R> body) throws Exception {
    Task task = Task.current();
    if (task.isRoot()) {
      throw new IllegalStateException(
          "a TaskLocal is set in a task, and this thread is in none: call enter(...) first");
    }
    T previous = task.get(key);
    task.set(key, value);
    try {
      return Task.nullable(body.run());
    } finally {
      task.set(key, previous);
    }
  }
}
