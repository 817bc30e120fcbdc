package io.fairlead.task;

/**
 * Something whose completions are found by looking. An {@link Owner} looks, from its own thread, or
 * carriers do; one source is polled by one thread at a time.
 *
 * <p>How often: all the time for 300 µs after the last find or ring, then after naps of a fiftieth
 * of the time that nothing was found, up to {@link TaskConfig#pollParkNanosMax}. An owner that is
 * not the runtime's poller naps after some 50 µs. So a source that has something new pending beside
 * what is old rings, and is looked at all the time again.
 */
public interface PollSource {

  /**
   * Looks once and completes what it finds. Never blocks; lock-free where possible. It is called
   * again and again by a thread that others' tasks wait for: some 20 µs are long.
   *
   * @return the number of completions found
   */
  int poll();

  /**
   * Whether there can be anything to find. While no source of an owner has, the owner sleeps; a
   * source that says false therefore rings {@link Owner#ring} (or {@link TaskRuntime#ringPoller})
   * after it has begun to say true. It may ring whenever something new is pending: that costs a few
   * nanoseconds while somebody looks, and some microseconds if that one naps. Owner's or carrier's
   * thread; never blocks.
   */
  default boolean hasPending() {
    return true;
  }
}
