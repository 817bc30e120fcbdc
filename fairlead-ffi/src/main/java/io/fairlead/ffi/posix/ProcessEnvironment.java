package io.fairlead.ffi.posix;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/**
 * The environment as the C library has it, which native libraries read: {@link System#getenv} shows
 * how it was when Java started, and programs that Java starts get that one.
 *
 * <p>Setting races with other native threads that read, so it is done before a library that makes
 * threads is loaded. Any thread; never blocks.
 */
public final class ProcessEnvironment {
  private ProcessEnvironment() {}

  /** Whether there is one: on POSIX systems. */
  private static boolean isThere() {
    return find("getenv").isPresent() && find("setenv").isPresent();
  }

  /** The value; null if the name is not set, or there is no environment. */
  public static @Nullable String get(String name) {
    if (!isThere()) {
      return null;
    }
    FunctionDescriptor type = FunctionDescriptor.of(ADDRESS, ADDRESS);
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment value =
          (MemorySegment)
              Linker.nativeLinker()
                  .downcallHandle(function("getenv"), type)
                  .invokeExact(arena.allocateFrom(name));
      return value.address() == 0 ? null : value.reinterpret(Long.MAX_VALUE).getString(0);
    } catch (Throwable e) {
      throw ForeignCall.unexpected("getenv", e);
    }
  }

  /**
   * Sets what is not set.
   *
   * @return whether it is set now
   */
  public static boolean setIfAbsent(String name, String value) {
    if (!isThere()) {
      return false;
    }
    FunctionDescriptor type = FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS, JAVA_INT);
    try (Arena arena = Arena.ofConfined()) {
      int status =
          (int)
              Linker.nativeLinker()
                  .downcallHandle(function("setenv"), type)
                  .invokeExact(arena.allocateFrom(name), arena.allocateFrom(value), 0);
      return status == 0;
    } catch (Throwable e) {
      throw ForeignCall.unexpected("setenv", e);
    }
  }

  private static MemorySegment function(String name) {
    return find(name).orElseThrow();
  }

  private static Optional<MemorySegment> find(String name) {
    return Linker.nativeLinker().defaultLookup().find(name);
  }
}
