package io.fairlead.comm.wire;

import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/** Walks over segments, seen as one run of bytes, from front to back. */
final class Cursor {
  private final MemorySegment[] pieces;
  private int piece;
  private long at;

  Cursor(MemorySegment[] pieces) {
    this.pieces = pieces;
  }

  /** The next bytes where they lie, if they lie in native memory and in one piece; passes them. */
  @Nullable MemorySegment direct(long bytes) {
    skipEmpty();
    MemorySegment current = pieces[piece];
    if (!current.isNative() || current.byteSize() - at < bytes) {
      return null;
    }
    MemorySegment part = current.asSlice(at, bytes);
    at += bytes;
    return part;
  }

  /** Copies the next bytes to the front of {@code target}. */
  void copyTo(MemorySegment target, long targetOffset, long bytes) {
    long done = 0;
    while (done < bytes) {
      long count = part(bytes - done);
      MemorySegment.copy(pieces[piece], at, target, targetOffset + done, count);
      at += count;
      done += count;
    }
  }

  /** Copies to the next bytes from {@code source}. */
  void copyFrom(MemorySegment source, long sourceOffset, long bytes) {
    long done = 0;
    while (done < bytes) {
      long count = part(bytes - done);
      MemorySegment.copy(source, sourceOffset + done, pieces[piece], at, count);
      at += count;
      done += count;
    }
  }

  void skip(long bytes) {
    long done = 0;
    while (done < bytes) {
      long count = part(bytes - done);
      at += count;
      done += count;
    }
  }

  private long part(long wanted) {
    skipEmpty();
    return Math.min(wanted, pieces[piece].byteSize() - at);
  }

  private void skipEmpty() {
    while (at == pieces[piece].byteSize() && piece + 1 < pieces.length) {
      piece++;
      at = 0;
    }
  }

  // --- what can be told of segments beforehand --------------------------------------------------

  /** Whether a library could read or write all of them where they lie, in one bulk each. */
  static boolean allNative(MemorySegment[] pieces) {
    for (MemorySegment segment : pieces) {
      if (segment.byteSize() > 0 && !segment.isNative()) {
        return false;
      }
    }
    return true;
  }

  /** Whether the bytes are one piece, so that the other side's pieces do not matter. */
  static boolean single(MemorySegment[] pieces) {
    int count = 0;
    for (MemorySegment segment : pieces) {
      count += segment.byteSize() > 0 ? 1 : 0;
    }
    return count <= 1;
  }

  /** Whether this thread may read them, or write them, now. */
  static boolean reachable(MemorySegment[] pieces, boolean write) {
    Thread here = Thread.currentThread();
    for (MemorySegment segment : pieces) {
      if (!segment.scope().isAlive()
          || !segment.isAccessibleBy(here)
          || (write && segment.isReadOnly())) {
        return false;
      }
    }
    return true;
  }
}
