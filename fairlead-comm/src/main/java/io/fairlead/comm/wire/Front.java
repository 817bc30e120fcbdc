package io.fairlead.comm.wire;

import io.fairlead.comm.spi.MessageRequest;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/**
 * What goes before the blobs of an active message: the length of the header (8), how many blobs
 * (8), the length of each (8), then the header.
 */
final class Front {
  private static final int TABLE = 16;

  /** Fronts are kept by the receiver as a whole, so there is an end to them. */
  static final long BYTES_MAX = 16L << 20;

  final long[] lengths;
  final long headerBytes;

  /** Where the header begins, from where the front does. */
  final long headerOffset;

  private Front(long[] lengths, long headerBytes) {
    this.lengths = lengths;
    this.headerBytes = headerBytes;
    this.headerOffset = TABLE + (long) lengths.length * Long.BYTES;
  }

  long bytes() {
    return headerOffset + headerBytes;
  }

  static long bytes(MessageRequest request) {
    return TABLE + (long) request.blobs().length * Long.BYTES + request.header().byteSize();
  }

  /** The table alone, in memory of its own. */
  static MemorySegment table(MessageRequest request) {
    long[] words = new long[2 + request.blobs().length];
    MemorySegment table = MemorySegment.ofArray(words);
    writeTable(request, table, 0);
    return table;
  }

  /** Writes all of it; answers where it ends. */
  static long write(MessageRequest request, MemorySegment into, long offset) {
    long end = writeTable(request, into, offset);
    MemorySegment header = request.header();
    MemorySegment.copy(header, 0, into, end, header.byteSize());
    return end + header.byteSize();
  }

  private static long writeTable(MessageRequest request, MemorySegment into, long offset) {
    MemorySegment[] blobs = request.blobs();
    Frame.putLong(into, offset, request.header().byteSize());
    Frame.putLong(into, offset + Long.BYTES, blobs.length);
    long at = offset + TABLE;
    for (MemorySegment blob : blobs) {
      Frame.putLong(into, at, blob.byteSize());
      at += Long.BYTES;
    }
    return at;
  }

  /**
   * Reads a front, believing none of its numbers.
   *
   * @param bytes how much may be read from {@code offset} on
   * @return null: the numbers cannot be true
   */
  static @Nullable Front read(MemorySegment from, long offset, long bytes) {
    if (bytes < TABLE) {
      return null;
    }
    long headerBytes = Frame.getLong(from, offset);
    long blobs = Frame.getLong(from, offset + Long.BYTES);
    if (blobs < 0 || blobs > (bytes - TABLE) / Long.BYTES) {
      return null;
    }
    long[] lengths = new long[(int) blobs];
    long sum = 0;
    for (int i = 0; i < lengths.length; i++) {
      long length = Frame.getLong(from, offset + TABLE + (long) i * Long.BYTES);
      if (length < 0 || length > Long.MAX_VALUE - sum) {
        return null;
      }
      lengths[i] = length;
      sum += length;
    }
    Front front = new Front(lengths, headerBytes);
    return headerBytes < 0 || headerBytes > bytes - front.headerOffset ? null : front;
  }

  /** The bytes of all blobs; no overflow, {@link #read} has seen to it. */
  long blobBytes() {
    long sum = 0;
    for (long length : lengths) {
      sum += length;
    }
    return sum;
  }
}
