package io.fairlead.comm;

import java.lang.foreign.MemorySegment;

/**
 * A piece of a message: host memory of the caller's, or a buffer lent by the engine. A message has
 * any number of them, mixed, and they are gathered without a copy of their own.
 */
public sealed interface Blob permits HostBlob, LentBuffer {

  /** The length; 64 bits. Any thread; never blocks. */
  long bytes();

  /**
   * Host memory that the caller keeps alive, and unchanged, until the operation has ended.
   *
   * @throws IllegalArgumentException if only one thread may read it (a confined arena)
   */
  static Blob of(MemorySegment segment) {
    return new HostBlob(HostBlob.shared(segment));
  }
}
