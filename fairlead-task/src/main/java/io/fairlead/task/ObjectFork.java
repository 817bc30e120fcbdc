package io.fairlead.task;

import org.jspecify.annotations.Nullable;

/**
 * A function that forks, from an object to an object.
 *
 * @param <A> its argument
 * @param <R> its result
 */
@FunctionalInterface
public interface ObjectFork<A extends @Nullable Object, R extends @Nullable Object> {

  /**
   * Runs once for each fork, in place or on another thread.
   *
   * @param forks the running thread's: fork and join with this one, never with one from outside
   */
  R run(Forks forks, A argument);
}
