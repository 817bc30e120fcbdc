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
  FAIRLEAD,

  /**
   * One allocation of the whole limit (or as much of it as there is), taken from the driver with
   * the first buffer and cut into buffers by Fairlead: no allocation asks the driver again,
   * whatever its size, and nobody else on the device gets what is not in use. Sizes that do not
   * come again cost the least here. Buffers that are in use cannot be moved, so that a large one
   * may find no place although enough is free; and memory checkers see one allocation. Give a
   * limit.
   */
  ARENA
}
