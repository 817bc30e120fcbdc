package io.fairlead.solver.internal.device;

import io.fairlead.device.spi.KernelArguments;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/** Kernel arguments without a driver: arrays become off-heap memory, scalars stay as they are. */
final class FakeArguments implements KernelArguments {
  private final Object[] values;

  private FakeArguments(Object[] values) {
    this.values = values;
  }

  static FakeArguments of(Object... values) {
    Object[] held = values.clone();
    for (int i = 0; i < held.length; i++) {
      if (held[i] instanceof double[] d) {
        held[i] = Arena.ofAuto().allocateFrom(ValueLayout.JAVA_DOUBLE, d);
      } else if (held[i] instanceof byte[] bytes) {
        held[i] = Arena.ofAuto().allocateFrom(ValueLayout.JAVA_BYTE, bytes);
      } else if (held[i] instanceof int[] ints) {
        held[i] = Arena.ofAuto().allocateFrom(ValueLayout.JAVA_INT, ints);
      }
    }
    return new FakeArguments(held);
  }

  /** Lets one argument be the memory of another. */
  FakeArguments alias(int index, int of) {
    values[index] = values[of];
    return this;
  }

  double[] doubles(int index) {
    return buffer(index).toArray(ValueLayout.JAVA_DOUBLE);
  }

  @Override
  public int count() {
    return values.length;
  }

  @Override
  public boolean isBuffer(int index) {
    return values[index] instanceof MemorySegment;
  }

  @Override
  public long bits(int index) {
    return switch (values[index]) {
      case Double d -> Double.doubleToRawLongBits(d);
      case Integer i -> i;
      case Long l -> l;
      case MemorySegment s -> s.address();
      default -> throw new IllegalStateException("argument " + index);
    };
  }

  @Override
  public long bytes(int index) {
    return values[index] instanceof MemorySegment s ? s.byteSize() : 8;
  }

  @Override
  public MemorySegment buffer(int index) {
    return (MemorySegment) values[index];
  }
}
