package io.fairlead.memory;

import org.jspecify.annotations.Nullable;

/**
 * Pieces by size: eight bins for each power of two, a bit for each bin that has any. Whatever is
 * asked for is found in a bounded number of steps, however many pieces there are. The two-level
 * scheme is that of TLSF (Masmano, Ripoll, Crespo and Real, 2004).
 *
 * <p>Guarded by the lock of its {@link ArenaPool}.
 */
final class PieceIndex {
  private static final int BINS = 448;

  /** Pieces of one bin that are compared while a larger bin would do as well. */
  private static final int LOOKS = 32;

  private final @Nullable Piece[] newest = new @Nullable Piece[BINS];
  private final long[] filled = new long[BINS / Long.SIZE];
  private long granules;
  private int count;

  void insert(Piece piece) {
    int bin = bin(piece.granules);
    Piece head = newest[bin];
    piece.index = this;
    piece.binPrevious = null;
    piece.binNext = head;
    if (head != null) {
      head.binPrevious = piece;
    }
    newest[bin] = piece;
    filled[bin >> 6] |= 1L << bin;
    granules += piece.granules;
    count++;
  }

  void remove(Piece piece) {
    int bin = bin(piece.granules);
    Piece previous = piece.binPrevious;
    Piece next = piece.binNext;
    if (next != null) {
      next.binPrevious = previous;
    }
    if (previous != null) {
      previous.binNext = next;
    } else {
      newest[bin] = next;
      if (next == null) {
        filled[bin >> 6] &= ~(1L << bin);
      }
    }
    piece.index = null;
    piece.binPrevious = null;
    piece.binNext = null;
    granules -= piece.granules;
    count--;
  }

  /** A piece of at least that many granules, the tightest of those at hand; null if none is. */
  @Nullable Piece find(long wanted) {
    int own = bin(wanted);
    Piece tight = tightest(own, wanted, LOOKS);
    if (tight != null) {
      return tight;
    }
    int larger = nextFilled(own + 1);
    return larger < BINS
        ? tightest(larger, wanted, LOOKS)
        : tightest(own, wanted, Integer.MAX_VALUE); // before somebody waits, or is refused
  }

  private @Nullable Piece tightest(int bin, long wanted, int looks) {
    Piece best = null;
    Piece each = newest[bin];
    for (int left = looks; each != null && left > 0; each = each.binNext, left--) {
      if (each.granules >= wanted && (best == null || each.granules < best.granules)) {
        best = each;
        if (each.granules == wanted) {
          break;
        }
      }
    }
    return best;
  }

  /** The newest piece of the smallest bin from this one on that has any; null behind the last. */
  @Nullable Piece newestFrom(int bin) {
    int found = nextFilled(bin);
    return found < BINS ? newest[found] : null;
  }

  /** What follows in the order of {@link #newestFrom}. */
  @Nullable Piece next(Piece piece) {
    Piece next = piece.binNext;
    return next != null ? next : newestFrom(bin(piece.granules) + 1);
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

  /** Granules of all pieces. */
  long granules() {
    return granules;
  }

  int count() {
    return count;
  }

  /** The largest piece's granules: for reports, not for the fast path. */
  long largest() {
    long largest = 0;
    for (int bin = BINS - 1; bin >= 0 && largest == 0; bin--) {
      for (Piece each = newest[bin]; each != null; each = each.binNext) {
        largest = Math.max(largest, each.granules);
      }
    }
    return largest;
  }

  /** Ascending with the size; all of a bin are smaller than all of a later one. */
  static int bin(long granules) {
    if (granules < 8) {
      return (int) granules;
    }
    int power = 63 - Long.numberOfLeadingZeros(granules);
    return (power - 2) * 8 + ((int) (granules >>> (power - 3)) & 7);
  }
}
