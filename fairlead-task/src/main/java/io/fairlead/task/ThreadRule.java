package io.fairlead.task;

/** Where a native engine may be entered. Each engine states one; {@link Gate} obeys it. */
public enum ThreadRule {
  /** From any thread, any number at once. */
  ANY_THREAD,
  /** From any thread, one call at a time for each instance. */
  ONE_AT_A_TIME,
  /** From any thread on which its context is current; see {@link Binding}. */
  CONTEXT_CURRENT,
  /** From its owner's thread only. */
  OWNER_ONLY
}
