package io.fairlead.device;

import java.util.Objects;

/**
 * A position in a stream: after its operation number {@code sequence}; 0 is before the first. A
 * value: it may be kept, compared and passed between tasks, holds no driver resource, and stays
 * meaningful after its stream was closed (everything is reached then).
 */
public record Mark(DeviceStream stream, long sequence) {
  public Mark {
    Objects.requireNonNull(stream, "stream");
    if (sequence < 0) {
      throw new IllegalArgumentException("a mark's sequence is at least 0, not " + sequence);
    }
  }

  @Override
  public String toString() {
    return "stream " + stream.id() + " operation " + sequence;
  }
}
