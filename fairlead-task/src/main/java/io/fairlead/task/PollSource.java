package io.fairlead.task;

/**
 * Something whose completions are found by looking. An {@link Owner} looks, from its own thread, or
 * carriers do; one source is polled by one thread at a time.
 *
 * <p>How often: all the time for a millisecond after the last find or ring, then after naps of a
 * fiftieth of the time that nothing was found, up to {@link TaskConfig#pollParkNanosMax} and {@link
 * #napNanosMax}. An owner that is not the runtime's poller naps after some 50 µs, one of messages
 * ({@link Role#COMM}) after 200 µs. So a source that has something new pending beside what is old
 * rings, and is looked at all the time again.
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

  /**
   * Whether a poll might find something just now. Asked, in place of polls, by a task that looks in
   * the place of its idle carrier; where it may, the task goes aside and the carrier polls. So it
   * reads memory and does nothing else: completes nothing, calls nobody back, takes no lock. A poll
   * comes some 20 times a second all the same. On any thread, not during another call; never
   * blocks, never suspends.
   */
  default boolean mayFind() {
    return hasPending();
  }

  /**
   * Whether something was handed to this source that its next poll will do for certain. An {@link
   * Owner} asks after it has announced that it will sleep, and polls again instead. So what others
   * hand to a source that always has something pending, and that therefore only naps, does not lie
   * there for a nap. Owner's thread; never blocks; cheap.
   */
  default boolean isReady() {
    return false;
  }

  /**
   * The longest nap of an {@link Owner} while this source has something pending, if that is less
   * than {@link TaskConfig#pollParkNanosMax}: for what must be found sooner, however long it was in
   * coming. Asked before each nap, after {@link #isReady}, and only then. Owner's thread; never
   * blocks; cheap.
   */
  default long napNanosMax() {
    return Long.MAX_VALUE;
  }

  /**
   * Whether tasks that wait look for themselves, as far as the last poll could tell, and so find
   * what comes before this owner would. Then it would only be in their way: unless it was rung, it
   * takes its longest nap at once. Owner's thread; never blocks; cheap.
   */
  default boolean isLookedFor() {
    return false;
  }
}
