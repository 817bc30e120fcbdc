package io.fairlead.comm.wire;

/**
 * How a long transfer is cut: each run of bytes into pieces of {@code piece} bytes, its last one
 * shorter. Both sides know the runs and the piece, so both make the same cuts. All lengths are
 * 64-bit; empty runs have no pieces.
 */
final class Plan {
  private final long[] runs;
  private final long piece;
  private final long count;
  private int run;
  private long at;

  /**
   * @param runs zero or more each, their sum not beyond a long; the caller has checked it
   * @param piece 1 or more
   */
  Plan(long[] runs, long piece) {
    this.runs = runs;
    this.piece = piece;
    long sum = 0;
    for (long bytes : runs) {
      sum += Math.ceilDiv(bytes, piece);
    }
    this.count = sum;
  }

  /**
   * A number that differs, but for a rare chance, for runs of other lengths. The receiver sends it
   * with its consent, so that nothing is sent that is longer than the receives that were posted:
   * some libraries write beyond those.
   */
  static int print(long[] runs) {
    int print = 1;
    for (long bytes : runs) {
      print = bytes == 0 ? print : 31 * print + Long.hashCode(bytes);
    }
    return print;
  }

  /** How many pieces there are in all. */
  long count() {
    return count;
  }

  /** The length of the next piece; there is one. */
  long next() {
    while (at == runs[run]) {
      run++;
      at = 0;
    }
    long bytes = Math.min(piece, runs[run] - at);
    at += bytes;
    return bytes;
  }
}
