package io.fairlead.solver.internal.device;

import io.fairlead.memory.DeviceBuffer;
import java.util.function.LongFunction;

/** How the device memory of one solve on one rank is cut into {@link Vectors}. */
final class Workspace {
  /** Where each vector begins: what coalesced access on any device asks for. */
  private static final long ALIGNMENT = 256;

  private Workspace() {}

  /** Returns the bytes that a part's vectors take. */
  static long bytes(RankPart part) {
    Count count = new Count();
    Vectors.make(part, count);
    return count.bytes;
  }

  /** Cuts memory of {@link #bytes}, which stays the caller's. */
  static Vectors<DeviceBuffer> cut(RankPart part, DeviceBuffer memory) {
    return Vectors.make(part, new Cut(memory));
  }

  private static long aligned(long doubles) {
    long bytes = doubles * Double.BYTES;
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  }

  private static final class Count implements LongFunction<Long> {
    private long bytes;

    @Override
    public Long apply(long doubles) {
      bytes += aligned(doubles);
      return bytes;
    }
  }

  private static final class Cut implements LongFunction<DeviceBuffer> {
    private final DeviceBuffer memory;
    private long offset;

    Cut(DeviceBuffer memory) {
      this.memory = memory;
    }

    @Override
    public DeviceBuffer apply(long doubles) {
      DeviceBuffer slice = memory.slice(offset, doubles * Double.BYTES);
      offset += aligned(doubles);
      return slice;
    }
  }
}
