package io.fairlead.comm;

import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import org.jspecify.annotations.Nullable;

/** The blobs of one send as the transport sees them: one segment each. Immutable. */
final class Parcel {
  private final MemorySegment[] segments;
  private final LentBuffer @Nullable [] lent;

  private Parcel(MemorySegment[] segments, LentBuffer @Nullable [] lent) {
    this.segments = segments;
    this.lent = lent;
  }

  /** Takes over the lent buffers; if one cannot be, those before it are given back. */
  static Parcel of(CommEngine engine, Blob[] blobs) {
    MemorySegment[] segments = new MemorySegment[blobs.length];
    LentBuffer[] lent = new LentBuffer[blobs.length];
    int taken = 0;
    boolean complete = false;
    try {
      for (int i = 0; i < blobs.length; i++) {
        switch (blobs[i]) {
          case HostBlob host -> segments[i] = host.segment();
          case LentBuffer buffer -> {
            segments[i] = buffer.send(engine.lender);
            lent[taken++] = buffer;
          }
        }
      }
      complete = true;
    } finally {
      if (!complete) {
        giveBack(lent, taken);
      }
    }
    return new Parcel(segments, taken == 0 ? null : Arrays.copyOf(lent, taken));
  }

  private static void giveBack(LentBuffer[] lent, int count) {
    for (int i = 0; i < count; i++) {
      lent[i].ended();
    }
  }

  MemorySegment[] segments() {
    return segments;
  }

  /** The lent buffers among the blobs, to be given back at the end; null: none. */
  LentBuffer @Nullable [] lent() {
    return lent;
  }
}
