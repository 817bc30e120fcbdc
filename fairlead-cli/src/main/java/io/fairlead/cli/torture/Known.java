package io.fairlead.cli.torture;

import io.fairlead.memory.DeviceBuffer;
import org.jspecify.annotations.Nullable;

/** A buffer, and what it holds. Used by one task. */
final class Known implements AutoCloseable {
  final DeviceBuffer buffer;
  final long words;

  /** See {@link Content}. */
  long base;

  /** False after a change that was broken off in its middle: then it may only be written. */
  boolean isKnown;

  /** While foreign code may use it: then only its own task's stream may. */
  Leased.@Nullable Entry lease;

  Known(DeviceBuffer buffer) {
    this.buffer = buffer;
    this.words = buffer.bytes() / Long.BYTES;
  }

  boolean isLent() {
    return lease != null && lease.isOpen();
  }

  void holds(long newBase) {
    base = newBase;
    isKnown = true;
  }

  @Override
  public void close() {
    buffer.close();
  }
}
