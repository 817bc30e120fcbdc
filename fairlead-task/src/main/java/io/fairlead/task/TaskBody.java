package io.fairlead.task;

import org.jspecify.annotations.Nullable;

/**
 * The work of a task.
 *
 * @param <T> the type of its result
 */
@FunctionalInterface
public interface TaskBody<T extends @Nullable Object> {

  /** Runs once, on the task's thread; may wait anywhere. */
  @Nullable T run() throws Exception;
}
