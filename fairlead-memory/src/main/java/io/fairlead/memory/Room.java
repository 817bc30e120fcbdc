package io.fairlead.memory;

import org.jspecify.annotations.Nullable;

/**
 * The bytes of one reservation. All fields that change are guarded by the {@link Budget}'s lock.
 *
 * <p>{@code used} counts what was taken out of it: buffers (until their free was reached) and rooms
 * carved from it. After it closed, whatever comes back goes to the room that it was carved from, or
 * to the device.
 */
final class Room {
  long size;

  /**
   * Whether it takes what a request lacks from where it came from; set before anybody draws on it.
   */
  boolean grows;

  /** The room that this one was carved from; null if its bytes came from the device. */
  final @Nullable Room parent;

  /** The reservation around this one in its task, whether or not it was carved from it. */
  final @Nullable Room outer;

  /** Whose it is. */
  final Keeper keeper;

  long used;
  boolean open = true;

  Room(long size, @Nullable Room parent, @Nullable Room outer, Keeper keeper) {
    this.size = size;
    this.parent = parent;
    this.outer = outer;
    this.keeper = keeper;
  }

  long free() {
    return open ? size - used : 0;
  }
}
