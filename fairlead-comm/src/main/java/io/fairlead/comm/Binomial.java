package io.fairlead.comm;

import java.util.Arrays;

/**
 * The binomial tree over ranks 0 … n − 1 with 0 at its root: the parent of a rank is the rank with
 * its lowest bit cleared, so the ranks below and including r are neighbours.
 */
final class Binomial {
  private Binomial() {}

  static int parent(int rank) {
    return rank & rank - 1;
  }

  /** Largest subtree first: who has most to pass on gets it first. */
  static int[] children(int rank, int size) {
    int[] children = new int[Integer.SIZE];
    int count = 0;
    for (int bit = highest(rank, size); bit > 0; bit >>= 1) {
      if (rank + bit < size) {
        children[count++] = rank + bit;
      }
    }
    return Arrays.copyOf(children, count);
  }

  /** How many ranks are below and including {@code rank}. */
  static int subtree(int rank, int size) {
    int full = rank == 0 ? size : Integer.lowestOneBit(rank);
    return Math.min(full, size - rank);
  }

  private static int highest(int rank, int size) {
    return rank == 0
        ? Integer.highestOneBit(Math.max(1, size - 1))
        : Integer.lowestOneBit(rank) / 2;
  }
}
