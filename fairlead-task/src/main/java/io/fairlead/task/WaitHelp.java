package io.fairlead.task;

/**
 * How a waiting thread can help its own completion along. Given to {@link Completion#source} by
 * whoever starts the operation; called by any number of waiting threads at once.
 */
public interface WaitHelp {

  /**
   * SPIN: looks once whether the operation is done, and may complete the source. Any thread; never
   * blocks.
   *
   * @return true if it is done
   */
  boolean poll();

  /**
   * As {@link #poll}, by a task that goes on looking if that does not find its end: it looks in the
   * place of whoever naps meanwhile. Where it finds the ends of others it may stop at any time, and
   * who naps has to look again soon.
   *
   * @param wanted what the task waits for
   */
  default void pollFor(Completion<?> wanted) {
    poll();
  }

  /**
   * How long a task on an idle carrier looks by {@link #poll} unless {@link #lookNanos} says
   * otherwise: what it has just launched may end sooner than it takes to be put down and taken up
   * again, and the carrier would do nothing but look.
   */
  long LOOK_NANOS = 10_000;

  /**
   * Whether {@link #poll} alone finds the end, and nobody is told of it. A task whose carrier has
   * nothing else to run then looks itself before it parks: for {@link #lookNanos} with {@link
   * #poll}, then with {@link #isReady}. Any thread; never blocks; cheap.
   */
  default boolean isFoundByLooking() {
    return false;
  }

  /**
   * How long such a task looks with {@link #poll} at most; never longer than a task may look at
   * all, which is some 300 µs.
   */
  default long lookNanos() {
    return LOOK_NANOS;
  }

  /**
   * A waiting thread parks now: if it looked, it has found nothing. Whoever naps because others
   * look has to look again. Any thread; never blocks; cheap.
   */
  default void parks() {}

  /**
   * Whether {@link #poll} would find the end just now. Asked again and again by a task that looks
   * in the place of its idle carrier, so it reads memory and does nothing else: completes nothing,
   * calls nobody back, takes no lock. Any thread; never blocks, never suspends.
   *
   * @return true also where that cannot be told without more: a task then does not look on
   */
  default boolean isReady() {
    return true;
  }

  /**
   * BLOCKING: blocks the calling OS thread until the operation is done, or for about {@code nanos}
   * where the engine can bound its wait.
   *
   * @return false if the engine cannot block here: the caller parks instead
   */
  boolean block(long nanos);

  /** What is waited for, for messages: "stream 7 of device 0 to reach 12", say. */
  default String what() {
    return "the operation";
  }
}
