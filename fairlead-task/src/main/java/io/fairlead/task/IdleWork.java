package io.fairlead.task;

/**
 * What a carrier without ready work does before it rests. Runs on the carrier's thread, in no task.
 */
interface IdleWork {

  /**
   * Looks once, and makes something ready if there is something to do. Never blocks.
   *
   * @return whether it did
   */
  boolean run();
}
