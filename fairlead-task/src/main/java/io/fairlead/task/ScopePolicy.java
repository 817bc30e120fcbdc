package io.fairlead.task;

/** What a scope makes of its children's outcomes. */
public enum ScopePolicy {
  /**
   * All must succeed: the first child that fails, or is cancelled by itself, cancels the rest and
   * join throws.
   */
  ALL_SUCCEED,
  /** One success is enough: it cancels the rest. If all fail, join throws the first failure. */
  FIRST_SUCCESS,
  /** Failures cancel nothing: join gives the successes, and the forks know their failures. */
  COLLECT
}
