package io.fairlead.comm;

import java.lang.foreign.MemorySegment;

/**
 * A message that arrived.
 *
 * @param source the rank that sent it
 * @param tag its tag
 * @param bytes its length, all blobs together
 * @param data its bytes, if it was received without segments of the caller's own; else empty
 */
public record Received(int source, int tag, long bytes, MemorySegment data) {

  static final MemorySegment NO_DATA = MemorySegment.ofArray(new byte[0]);
}
