package io.fairlead.task;

import org.jspecify.annotations.Nullable;

/**
 * One call of an engine.
 *
 * @param <I> the engine's instance
 * @param <T> the result
 */
@FunctionalInterface
public interface EngineCall<I, T extends @Nullable Object> {

  /** Runs where the engine's rule allows, with an instance that nobody else uses meanwhile. */
  @Nullable T call(I instance) throws Exception;
}
