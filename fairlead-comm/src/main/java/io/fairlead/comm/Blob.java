package io.fairlead.comm;

import io.fairlead.memory.DeviceBuffer;
import java.lang.foreign.MemorySegment;
import java.util.Objects;

/**
 * A piece of a message: host memory of the caller's, a device buffer, or a buffer lent by the
 * engine. A message has any number of them, mixed.
 */
public sealed interface Blob permits HostBlob, LentBuffer, DeviceBlob {

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

  /**
   * A device buffer or a view of one ({@link DeviceBuffer#slice}). Sent, it is copied out in the
   * order of the calling task's stream, at the call: the caller may enqueue what changes it next,
   * or close it, at once.
   */
  static Blob of(DeviceBuffer buffer) {
    return new DeviceBlob(Objects.requireNonNull(buffer, "buffer"));
  }
}
