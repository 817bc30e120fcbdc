package io.fairlead.memory;

import org.jspecify.annotations.Nullable;

/** Foreign code that knows no streams; see {@link Device#foreign}. */
@FunctionalInterface
public interface ForeignBody<T extends @Nullable Object> {
  /**
   * Calls the foreign code. The addresses are valid until this returns, and for what was enqueued
   * by then on the default stream. The buffers are the foreign code's for that long: what the task
   * does with them itself inside the body has no order with it.
   *
   * @param reads device addresses of the buffers that are read, in order
   * @param writes device addresses of the buffers that are written, in order
   */
  T run(long[] reads, long[] writes) throws Exception;
}
