package io.fairlead.memory;

import org.jspecify.annotations.Nullable;

/**
 * A run of granules of one range of device memory, between its neighbours. Guarded by the lock of
 * its {@link ArenaPool}, as all of its fields.
 *
 * <pre>
 *   used --closed--> resting --every use has ended--> ready, one with its ready neighbours
 *     ^                 |                               |
 *     \-----------------+-------------------------------/   whole, cut, or several as one
 * </pre>
 */
final class Piece {
  long start;
  long granules;
  @Nullable Piece before;
  @Nullable Piece after;

  /** Where it is offered; null while it is used. */
  @Nullable PieceIndex index;

  @Nullable Piece binPrevious;
  @Nullable Piece binNext;

  /** Its past, while that has not ended; null while it is used or ready. */
  ArenaPool.@Nullable Rest rest;

  Piece(long start, long granules) {
    this.start = start;
    this.granules = granules;
  }

  /** Cuts off what is beyond {@code keep} granules and answers it. */
  Piece cut(long keep) {
    Piece tail = new Piece(start + keep, granules - keep);
    tail.before = this;
    tail.after = after;
    if (after != null) {
      after.before = tail;
    }
    after = tail;
    granules = keep;
    return tail;
  }

  /** Takes over the neighbour behind it. */
  void absorb(Piece neighbour) {
    granules += neighbour.granules;
    after = neighbour.after;
    if (after != null) {
      after.before = this;
    }
  }
}
