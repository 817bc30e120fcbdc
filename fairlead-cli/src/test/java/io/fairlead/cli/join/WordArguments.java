package io.fairlead.cli.join;

import static java.lang.foreign.ValueLayout.JAVA_LONG;

import io.fairlead.device.spi.KernelArguments;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/** Kernel arguments without a driver: arrays of words between guards, scalars as they are. */
final class WordArguments implements KernelArguments {
  private static final int GUARD = 64;
  private static final long PATTERN = 0xA5A5_A5A5_A5A5_A5A5L;

  private final Object[] values;

  private WordArguments(Object[] values) {
    this.values = values;
  }

  static WordArguments of(Object... given) {
    Object[] values = given.clone();
    for (int i = 0; i < values.length; i++) {
      if (values[i] instanceof long[] words) {
        MemorySegment whole = Arena.ofAuto().allocate((words.length + 2 * GUARD) * 8L, Long.BYTES);
        for (int at = 0; at < words.length + 2 * GUARD; at++) {
          boolean inside = at >= GUARD && at < GUARD + words.length;
          whole.setAtIndex(JAVA_LONG, at, inside ? words[at - GUARD] : PATTERN);
        }
        values[i] = whole;
      }
    }
    return new WordArguments(values);
  }

  long[] words(int index) {
    return buffer(index).toArray(JAVA_LONG);
  }

  boolean guardsAreWhole() {
    for (Object value : values) {
      if (value instanceof MemorySegment whole) {
        long words = whole.byteSize() / 8;
        for (int at = 0; at < GUARD; at++) {
          if (whole.getAtIndex(JAVA_LONG, at) != PATTERN
              || whole.getAtIndex(JAVA_LONG, words - 1 - at) != PATTERN) {
            return false;
          }
        }
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
    return ((Number) values[index]).longValue();
  }

  @Override
  public long bytes(int index) {
    return isBuffer(index) ? buffer(index).byteSize() : 8;
  }

  @Override
  public MemorySegment buffer(int index) {
    MemorySegment whole = (MemorySegment) values[index];
    return whole.asSlice(GUARD * 8L, whole.byteSize() - 2 * GUARD * 8L);
  }
}
