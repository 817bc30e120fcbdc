package io.fairlead.solver.internal.device;

import io.fairlead.memory.DeviceBuffer;
import org.jspecify.annotations.Nullable;

/**
 * One level of one rank's part.
 *
 * @param a the operator's rows; null where a user's operator stands for the finest
 * @param rows how many of the level's rows are here: a block, or all of a replicated level
 * @param prolong from the next level to this one; null on the last
 * @param restrict its transpose, from this level to the next; null on the last
 */
record RankLevel(
    @Nullable MatrixPart a,
    int rows,
    DeviceBuffer inverseDiagonal,
    Smoother smoother,
    @Nullable MatrixPart prolong,
    @Nullable MatrixPart restrict) {

  /** Room that the level's solution needs after its own rows, here for A. */
  int ghostsOfA() {
    return a == null ? 0 : a.halo().ghosts();
  }
}
