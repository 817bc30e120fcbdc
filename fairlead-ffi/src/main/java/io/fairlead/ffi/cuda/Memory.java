package io.fairlead.ffi.cuda;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.MemorySegment;
import java.lang.invoke.VarHandle;

/**
 * Native memory by address, for what has one and no segment: answers of the driver, blocks of
 * launch parameters, tickets. Nothing is checked, so each caller knows that the address is alive.
 */
final class Memory {
  private static final MemorySegment ALL = MemorySegment.NULL.reinterpret(Long.MAX_VALUE);
  private static final VarHandle INT = JAVA_INT.varHandle();
  private static final VarHandle LONG = JAVA_LONG.varHandle();
  private static final int NAME_MAX = 4096;

  private Memory() {}

  static int getInt(long address) {
    return ALL.get(JAVA_INT, address);
  }

  static void setInt(long address, int value) {
    ALL.set(JAVA_INT, address, value);
  }

  static long getLong(long address) {
    return ALL.get(JAVA_LONG, address);
  }

  static void setLong(long address, long value) {
    ALL.set(JAVA_LONG, address, value);
  }

  /** Acquire: whoever sees a device's ticket must see the data that was copied before it. */
  static int getIntAcquire(long address) {
    return (int) INT.getAcquire(ALL, address);
  }

  /** As {@link #getIntAcquire}. */
  static long getLongAcquire(long address) {
    return (long) LONG.getAcquire(ALL, address);
  }

  /** Release: the device must not find an older value than what was there before it was told. */
  static void setLongRelease(long address, long value) {
    LONG.setRelease(ALL, address, value);
  }

  /** Text that ends with a zero; at most 4,096 bytes of it. */
  static String string(long address) {
    if (address == 0) {
      return "";
    }
    int length = 0;
    while (length < NAME_MAX && ALL.get(JAVA_BYTE, address + length) != 0) {
      length++;
    }
    byte[] bytes = ALL.asSlice(address, length).toArray(JAVA_BYTE);
    return new String(bytes, java.nio.charset.StandardCharsets.UTF_8);
  }
}
