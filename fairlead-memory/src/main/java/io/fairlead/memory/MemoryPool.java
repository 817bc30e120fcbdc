package io.fairlead.memory;

/** Which pool hands out a device's memory. */
public enum MemoryPool {
  /**
   * The driver's own stream-ordered pool: each buffer is a driver call at both ends, and of exactly
   * the size that was asked for, which is what memory checkers want to see.
   */
  DRIVER,

  /**
   * Fairlead's, on top of the driver's: memory of a closed buffer is kept, with how far it was
   * used, for the next buffer of its size. A stream that comes after those uses has it at once;
   * another one when they have ended.
   */
  FAIRLEAD
}
