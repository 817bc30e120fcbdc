package io.fairlead.task;

import org.jspecify.annotations.Nullable;

/**
 * Makes and ends the instances of an engine. For OWNER_ONLY all of it runs on the instance's owner
 * thread; else on the thread of the call that needs it, and of close.
 *
 * @param <I> the instance
 */
@FunctionalInterface
public interface EngineFactory<I> {

  /** Makes one instance. What it throws reaches the caller as the cause of an EngineException. */
  I create() throws Exception;

  /**
   * Ends an instance; called once for each, with no call in it. What it throws is logged, and does
   * not stop whatever it is called for.
   */
  default void destroy(I instance) throws Exception {}

  /** CONTEXT_CURRENT only: how the instance's context is made current. Called once for each. */
  default @Nullable Binding binding(I instance) {
    return null;
  }

  /**
   * Whether the instance can be used again after a body threw this; asked right after that. If not,
   * no call that begins later gets it: the next one there destroys it and makes a new one.
   */
  default boolean survives(I instance, Throwable thrown) {
    return true;
  }
}
