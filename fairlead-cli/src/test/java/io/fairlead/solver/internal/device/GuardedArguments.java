package io.fairlead.solver.internal.device;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_DOUBLE;

import io.fairlead.device.spi.KernelArguments;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;

/**
 * Kernel arguments without a driver: arrays become off-heap memory between two guards, scalars stay
 * as they are.
 */
final class GuardedArguments implements KernelArguments {
  private static final int GUARD = 256;
  private static final byte PATTERN = (byte) 0xA5;

  private final Object[] values;
  private final MemorySegment[] whole;

  private GuardedArguments(Object[] values, MemorySegment[] whole) {
    this.values = values;
    this.whole = whole;
  }

  static GuardedArguments of(Object... given) {
    Object[] values = given.clone();
    MemorySegment[] whole = new MemorySegment[given.length];
    for (int i = 0; i < given.length; i++) {
      MemorySegment array =
          switch (given[i]) {
            case double[] d -> MemorySegment.ofArray(d);
            case int[] n -> MemorySegment.ofArray(n);
            case byte[] b -> MemorySegment.ofArray(b);
            default -> null;
          };
      whole[i] = array == null ? MemorySegment.NULL : guarded(array);
      if (array != null) {
        values[i] = whole[i].asSlice(GUARD, array.byteSize());
      }
    }
    return new GuardedArguments(values, whole);
  }

  private static MemorySegment guarded(MemorySegment array) {
    MemorySegment memory = Arena.ofAuto().allocate(array.byteSize() + 2 * GUARD, GUARD);
    memory.fill(PATTERN);
    memory.asSlice(GUARD, array.byteSize()).copyFrom(array);
    return memory;
  }

  /** Lets one argument be the memory of another. */
  GuardedArguments alias(int index, int of) {
    values[index] = values[of];
    return this;
  }

  double[] doubles(int index) {
    return buffer(index).toArray(JAVA_DOUBLE);
  }

  byte[] bytes(MemorySegment memory) {
    return memory.toArray(JAVA_BYTE);
  }

  /** Whether nobody wrote beside the buffers. */
  boolean guardsAreWhole() {
    return Arrays.stream(whole).allMatch(GuardedArguments::isWhole);
  }

  private static boolean isWhole(MemorySegment memory) {
    byte[] bytes = memory.toArray(JAVA_BYTE);
    for (int i = 0; i < Math.min(GUARD, bytes.length); i++) {
      if (bytes[i] != PATTERN || bytes[bytes.length - 1 - i] != PATTERN) {
        return false;
      }
    }
    return true;
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
