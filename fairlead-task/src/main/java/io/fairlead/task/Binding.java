package io.fairlead.task;

/**
 * Makes a context current on the calling OS thread around a call. Neither method may suspend a
 * virtual thread.
 */
public interface Binding {

  /** Makes the context current and returns what was current before. */
  long bind();

  /** Makes {@code previous} current again. */
  void restore(long previous);
}
