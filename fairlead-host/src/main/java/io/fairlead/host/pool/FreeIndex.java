package io.fairlead.host.pool;

import org.jspecify.annotations.Nullable;

/**
 * Free chunks by size: eight bins for each power of two, a bit for each bin that has any. Finding
 * looks in the bin of the wanted size for the tightest fit, then in the next bin that has a chunk:
 * close to best fit at the cost of a few steps. The two-level scheme is that of TLSF (Masmano,
 * Ripoll, Crespo and Real, 2004). Guarded by the pool's lock.
 */
final class FreeIndex {
  private static final int BINS = 320;

  /** How many chunks of one bin are compared while a larger bin would do as well. */
  private static final int LOOKS = 32;

  private final @Nullable Chunk[] heads = new @Nullable Chunk[BINS];
  private final long[] filled = new long[BINS / Long.SIZE];

  void insert(Chunk chunk) {
    int bin = bin(chunk.granules);
    Chunk head = heads[bin];
    chunk.index = this;
    chunk.binPrevious = null;
    chunk.binNext = head;
    if (head != null) {
      head.binPrevious = chunk;
    }
    heads[bin] = chunk;
    filled[bin >> 6] |= 1L << bin;
  }

  void remove(Chunk chunk) {
    int bin = bin(chunk.granules);
    Chunk previous = chunk.binPrevious;
    Chunk next = chunk.binNext;
    if (next != null) {
      next.binPrevious = previous;
    }
    if (previous != null) {
      previous.binNext = next;
    } else {
      heads[bin] = next;
      if (next == null) {
        filled[bin >> 6] &= ~(1L << bin);
      }
    }
    chunk.index = null;
    chunk.binPrevious = null;
    chunk.binNext = null;
  }

  /** Removes and returns a chunk of at least that many granules, or null. */
  @Nullable Chunk take(long granules) {
    int own = bin(granules);
    Chunk best = tightest(own, granules, LOOKS);
    if (best == null) {
      int larger = nextFilled(own + 1);
      best =
          larger < BINS
              ? tightest(larger, granules, LOOKS)
              : tightest(own, granules, Integer.MAX_VALUE);
    }
    if (best != null) {
      remove(best);
    }
    return best;
  }

  private @Nullable Chunk tightest(int bin, long granules, int looks) {
    Chunk best = null;
    for (Chunk c = heads[bin]; c != null && looks > 0; c = c.binNext, looks--) {
      if (c.granules >= granules && (best == null || c.granules < best.granules)) {
        best = c;
        if (c.granules == granules) {
          break;
        }
      }
    }
    return best;
  }

  private int nextFilled(int from) {
    for (int word = from >> 6; word < filled.length; word++) {
      long bits = filled[word];
      if (word == from >> 6) {
        bits &= -1L << from;
      }
      if (bits != 0) {
        return (word << 6) + Long.numberOfTrailingZeros(bits);
      }
    }
    return BINS;
  }

  /** The largest chunk's granules: for reports, not for the fast path. */
  long largest() {
    long largest = 0;
    for (int bin = BINS - 1; bin >= 0 && largest == 0; bin--) {
      for (Chunk c = heads[bin]; c != null; c = c.binNext) {
        largest = Math.max(largest, c.granules);
      }
    }
    return largest;
  }

  static int bin(long granules) {
    if (granules < 8) {
      return (int) granules;
    }
    int power = 63 - Long.numberOfLeadingZeros(granules);
    return (power - 2) * 8 + ((int) (granules >>> (power - 3)) & 7);
  }
}
