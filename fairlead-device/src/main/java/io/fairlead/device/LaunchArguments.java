package io.fairlead.device;

import io.fairlead.device.spi.KernelArguments;
import java.lang.foreign.MemorySegment;

/**
 * The arguments of one launch as the driver gets them. Scalars are filled in by the launching task,
 * addresses under the stream's turn; the driver reads them during the call.
 */
final class LaunchArguments implements KernelArguments {
  private final Param[] params;
  private final long[] bits;
  private final long[] sizes;

  LaunchArguments(Param[] params) {
    this.params = params;
    this.bits = new long[params.length];
    this.sizes = new long[params.length];
  }

  void set(int index, long value, long bytes) {
    bits[index] = value;
    sizes[index] = bytes;
  }

  void setAddress(int index, long address) {
    bits[index] = address;
  }

  @Override
  public int count() {
    return params.length;
  }

  @Override
  public boolean isBuffer(int index) {
    return !params[index].isScalar();
  }

  @Override
  public long bits(int index) {
    return bits[index];
  }

  @Override
  public long bytes(int index) {
    return sizes[index];
  }

  @Override
  public MemorySegment buffer(int index) {
    throw new UnsupportedOperationException(
        "argument " + index + " is a device address here; only a driver can map it to memory");
  }
}
