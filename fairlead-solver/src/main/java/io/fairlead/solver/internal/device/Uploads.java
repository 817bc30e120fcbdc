package io.fairlead.solver.internal.device;

import io.fairlead.memory.Device;
import io.fairlead.memory.DeviceBuffer;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;

/**
 * Buffers that hold what a setup made, and who closes them: {@link #close} frees all of them in
 * stream order. Confined to the setup's task until it is done; closed by any thread, once.
 */
final class Uploads implements AutoCloseable {
  /** A device hands memory out in pieces of this. */
  private static final long GRANULE = 256;

  private final Device device;
  private final List<DeviceBuffer> buffers = new ArrayList<>();
  private long total;

  Uploads(Device device) {
    this.device = device;
  }

  DeviceBuffer doubles(double[] values, int length) {
    return upload(MemorySegment.ofArray(values).asSlice(0, (long) length * Double.BYTES));
  }

  DeviceBuffer doubles(double[] values, int from, int length) {
    return upload(
        MemorySegment.ofArray(values)
            .asSlice((long) from * Double.BYTES, (long) length * Double.BYTES));
  }

  DeviceBuffer ints(int[] values, int length) {
    return upload(MemorySegment.ofArray(values).asSlice(0, (long) length * Integer.BYTES));
  }

  DeviceBuffer bytes(byte[] values) {
    return upload(MemorySegment.ofArray(values));
  }

  private DeviceBuffer upload(MemorySegment source) {
    DeviceBuffer buffer = device.allocate(source.byteSize());
    buffers.add(buffer);
    total += rounded(source.byteSize());
    buffer.upload(source);
    return buffer;
  }

  /** What the buffers take of the device's memory. */
  long total() {
    return total;
  }

  private static long rounded(long bytes) {
    return (bytes + GRANULE - 1) / GRANULE * GRANULE;
  }

  @Override
  public void close() {
    buffers.forEach(DeviceBuffer::close);
  }
}
