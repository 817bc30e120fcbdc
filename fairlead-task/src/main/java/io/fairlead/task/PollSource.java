package io.fairlead.task;

/**
 * Something whose completions are found by looking. An {@link Owner} looks, from its own thread, so
 * one source is polled by one thread at a time.
 */
public interface PollSource {

  /**
   * Looks once and completes what it finds. Never blocks; lock-free where possible.
   *
   * @return the number of completions found
   */
  int poll();

  /**
   * Whether there can be anything to find. While no source of an owner has, the owner sleeps; a
   * source that says false therefore rings {@link Owner#ring} (or {@link TaskRuntime#ringPoller})
   * after it has begun to say true. Owner's thread; never blocks.
   */
  default boolean hasPending() {
    return true;
  }
}
