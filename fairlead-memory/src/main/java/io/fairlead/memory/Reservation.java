package io.fairlead.memory;

/**
 * Bytes that were promised to a task before it began: its allocations, and those of the children it
 * forks, draw on them and do not wait for anybody to end what he does. Where they need more, they
 * wait like all others.
 *
 * <p>While they are not in use, buffers that come back from below may have them, where nothing else
 * can leave the device; an allocation inside then waits until others have left it.
 *
 * <p>Reservations nest: one that is made inside another is carved from it if it has room.
 *
 * <p>Threads: any may close it, several times. Not blocking.
 */
public final class Reservation implements AutoCloseable {
  private final Budget budget;
  private final Room room;

  Reservation(Budget budget, Room room) {
    this.budget = budget;
    this.room = room;
  }

  /** The bytes that were asked for. */
  public long bytes() {
    return room.size;
  }

  /** The bytes that no buffer takes now; 0 once it is closed. */
  public long free() {
    return budget.free(room);
  }

  /**
   * Gives back what is not in use. Buffers that are still live inside stay counted, and their bytes
   * come back when they are closed.
   */
  @Override
  public void close() {
    budget.close(room);
  }

  @Override
  public String toString() {
    return "reservation of " + Sizes.text(room.size);
  }
}
