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
   * Whether {@link #poll} alone finds the end, and nobody is told of it. A task whose carrier has
   * nothing else to run then looks for some microseconds itself before it parks. Any thread; never
   * blocks; cheap.
   */
  default boolean isFoundByLooking() {
    return false;
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
