package io.fairlead.solver.internal;

/**
 * The caller's threads, as a hook: runs a body over an index range, in pieces, and returns when all
 * are done.
 *
 * <p>Pieces may run in any order, on any threads, at the same time, or all at once on the caller's.
 * Bodies therefore only write what belongs to their own indices, and what they compute for an index
 * does not depend on where the piece begins: so results do not depend on the number of threads.
 */
@FunctionalInterface
public interface Parallel {
  /** Everything in one piece on the caller's thread. */
  Parallel SEQUENTIAL =
      (n, minChunk, body) -> {
        if (n > 0) {
          body.run(0, n);
        }
      };

  /**
   * Runs {@code body} so that the pieces cover {@code 0..n} once.
   *
   * @param minChunk the least size of a piece that is worth a thread
   */
  void forRange(int n, int minChunk, RangeBody body);

  /** One piece of the range. */
  @FunctionalInterface
  interface RangeBody {
    /** Handles the indices from {@code from} to {@code to} (exclusive). */
    void run(int from, int to);
  }
}
