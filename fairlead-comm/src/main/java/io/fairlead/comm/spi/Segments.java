package io.fairlead.comm.spi;

import java.lang.foreign.MemorySegment;

/** Several segments seen as one run of bytes. */
public final class Segments {

  public static final MemorySegment[] NONE = {};

  private Segments() {}

  public static long bytes(MemorySegment[] segments) {
    long sum = 0;
    for (MemorySegment segment : segments) {
      sum += segment.byteSize();
    }
    return sum;
  }

  /**
   * A segment on the heap, aligned for longs and doubles; zeroed.
   *
   * @throws OutOfMemoryError if there is no room, or no array that long
   */
  public static MemorySegment allocate(long bytes) {
    long words = Math.ceilDiv(bytes, (long) Long.BYTES);
    if (words > Integer.MAX_VALUE - 8) {
      throw new OutOfMemoryError(
          "a message of " + bytes + " bytes fits no array: receive it into segments of your own");
    }
    return MemorySegment.ofArray(new long[(int) words]).asSlice(0, bytes);
  }

  /**
   * Copies all of {@code source} into {@code target}, whose bytes are as many.
   *
   * @throws IllegalStateException if an arena is closed
   * @throws WrongThreadException if a segment belongs to another thread
   */
  public static void copy(MemorySegment[] source, MemorySegment[] target) {
    if (source.length == 1 && target.length == 1) {
      copy(source[0], 0, target[0], 0, source[0].byteSize());
      return;
    }
    int to = 0;
    long toOffset = 0;
    for (MemorySegment from : source) {
      long fromOffset = 0;
      while (fromOffset < from.byteSize()) {
        long count = Math.min(from.byteSize() - fromOffset, target[to].byteSize() - toOffset);
        copy(from, fromOffset, target[to], toOffset, count);
        fromOffset += count;
        toOffset += count;
        if (toOffset == target[to].byteSize()) {
          to++;
          toOffset = 0;
        }
      }
    }
  }

  private static void copy(
      MemorySegment source, long sourceOffset, MemorySegment target, long targetOffset, long n) {
    MemorySegment.copy(source, sourceOffset, target, targetOffset, n);
  }
}
