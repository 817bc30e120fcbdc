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
