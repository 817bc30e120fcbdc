package io.fairlead.device.spi;

import java.lang.foreign.MemorySegment;

/**
 * The arguments of one launch, by position. As seen by a driver: scalars as raw bits and buffers as
 * device addresses with sizes. As seen by a Java kernel: also buffers as memory. Immutable.
 */
public interface KernelArguments {
  int count();

  /** Whether argument {@code index} is a buffer. */
  boolean isBuffer(int index);

  /**
   * The raw bits of a scalar ({@code double} as {@link Double#doubleToRawLongBits}), or the device
   * address.
   */
  long bits(int index);

  /** Bytes of a buffer argument, or of the scalar's type. */
  long bytes(int index);

  default double f64(int index) {
    return Double.longBitsToDouble(bits(index));
  }

  default float f32(int index) {
    return Float.intBitsToFloat((int) bits(index));
  }

  default int i32(int index) {
    return (int) bits(index);
  }

  default long i64(int index) {
    return bits(index);
  }

  /**
   * The buffer as memory, exactly as large as the argument; access beyond it throws. Only where the
   * driver runs Java kernels.
   */
  MemorySegment buffer(int index);
}
