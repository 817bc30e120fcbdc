package io.fairlead.cli.torture;

import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.MemorySegment;

/**
 * What buffers hold: word {@code i} is {@code base + i * STEP}, so that one number says all of it,
 * and no word is another one's, nor the same after a change. As in {@code torture.cu}.
 */
final class Content {
  static final long STEP = 0x9E37_79B9_7F4A_7C15L;

  private Content() {}

  /** Where a word is not what it should be; -1 if all are. */
  static long firstWrong(MemorySegment words, long base) {
    long count = words.byteSize() / Long.BYTES;
    for (long i = 0; i < count; i++) {
      if (words.getAtIndex(JAVA_LONG, i) != base + i * STEP) {
        return i;
      }
    }
    return -1;
  }

  static long[] of(long words, long base) {
    long[] all = new long[(int) words];
    for (int i = 0; i < all.length; i++) {
      all[i] = base + i * STEP;
    }
    return all;
  }
}
