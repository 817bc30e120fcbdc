package io.fairlead.comm;

import java.lang.foreign.MemorySegment;
import java.util.Objects;

/** Host memory of the caller's. */
record HostBlob(MemorySegment segment) implements Blob {

  /** Never started: only asked whether it could reach a segment. */
  private static final Thread ANOTHER = Thread.ofPlatform().unstarted(() -> {});

  @Override
  public long bytes() {
    return segment.byteSize();
  }

  /** The segment itself, once it is known that whoever meets the message can read it. */
  static MemorySegment shared(MemorySegment segment) {
    if (!Objects.requireNonNull(segment, "segment").isAccessibleBy(ANOTHER)) {
      throw new IllegalArgumentException(
          "the segment is confined to its thread, and a message is copied by the thread that"
              + " completes it: use Arena.ofShared(), Arena.ofAuto() or an array");
    }
    if (!segment.scope().isAlive()) {
      throw new IllegalArgumentException(
          "the segment's arena is closed already: keep it open until the operation has completed");
    }
    return segment;
  }

  static MemorySegment[] shared(MemorySegment[] segments) {
    for (MemorySegment segment : segments) {
      shared(segment);
    }
    return segments;
  }

  static MemorySegment writable(MemorySegment segment) {
    if (shared(segment).isReadOnly()) {
      throw new IllegalArgumentException(
          "the segment is read-only, and what comes is written to it: pass one that is not");
    }
    return segment;
  }

  static MemorySegment[] writable(MemorySegment[] segments) {
    for (MemorySegment segment : segments) {
      writable(segment);
    }
    return segments;
  }
}
