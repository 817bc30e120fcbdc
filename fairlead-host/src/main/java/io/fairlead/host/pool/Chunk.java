package io.fairlead.host.pool;

import org.jspecify.annotations.Nullable;

/**
 * A run of granules in a slab: used, pending or free. Neighbours in the slab are linked, so that
 * free space grows together again. All fields are guarded by the pool's lock.
 *
 * <pre>
 *   free --allocate--> used --free called--> pending --free ran--> free
 *                        ^------allocate by the same stream----'
 *                      used --free called, had already run--> free
 * </pre>
 */
final class Chunk {
  final Slab slab;
  long start;
  long granules;
  @Nullable Chunk before;
  @Nullable Chunk after;

  /** Where this chunk is offered, null while it is used. */
  @Nullable FreeIndex index;

  @Nullable Chunk binPrevious;
  @Nullable Chunk binNext;

  /** The block whose free has not run yet; only that block's stream may use the chunk. */
  @Nullable Block pendingOf;

  Chunk(Slab slab, long start, long granules) {
    this.slab = slab;
    this.start = start;
    this.granules = granules;
  }

  /** Cuts off what is beyond {@code keep} granules and returns it. */
  Chunk split(long keep) {
    Chunk rest = new Chunk(slab, start + keep, granules - keep);
    rest.before = this;
    rest.after = after;
    if (after != null) {
      after.before = rest;
    }
    after = rest;
    granules = keep;
    return rest;
  }

  /** Takes over the neighbour above. */
  void absorbAfter(Chunk neighbour) {
    granules += neighbour.granules;
    after = neighbour.after;
    if (after != null) {
      after.before = this;
    }
  }
}
