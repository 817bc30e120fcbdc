package io.fairlead.ffi.examples;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_DOUBLE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;

/**
 * Four functions of cuBLAS, by java.lang.foreign: what a user's own binding looks like. It does
 * nothing about threads, streams or contexts.
 */
final class Cublas {
  private static final int NO_TRANSPOSE = 0;

  private final MethodHandle create;
  private final MethodHandle destroy;
  private final MethodHandle setStream;
  private final MethodHandle dgemm;

  /** Loads the library, which stays loaded. */
  Cublas(String library) {
    SymbolLookup symbols = SymbolLookup.libraryLookup(library, Arena.global());
    create = function(symbols, "cublasCreate_v2", ADDRESS);
    destroy = function(symbols, "cublasDestroy_v2", JAVA_LONG);
    setStream = function(symbols, "cublasSetStream_v2", JAVA_LONG, JAVA_LONG);
    dgemm =
        function(
            symbols,
            "cublasDgemm_v2",
            JAVA_LONG, // handle
            JAVA_INT, // transposed a, b
            JAVA_INT,
            JAVA_INT, // m, n, k
            JAVA_INT,
            JAVA_INT,
            ADDRESS, // alpha, a host address
            JAVA_LONG, // a, a device address, and its leading dimension
            JAVA_INT,
            JAVA_LONG, // b
            JAVA_INT,
            ADDRESS, // beta
            JAVA_LONG, // c
            JAVA_INT);
  }

  private static MethodHandle function(
      SymbolLookup symbols, String name, MemoryLayout... parameters) {
    return Linker.nativeLinker()
        .downcallHandle(symbols.findOrThrow(name), FunctionDescriptor.of(JAVA_INT, parameters));
  }

  /** A handle, in the context that is current. */
  long create() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment answer = arena.allocate(JAVA_LONG);
      check("cublasCreate", (int) create.invokeExact(answer));
      return answer.get(JAVA_LONG, 0);
    } catch (Throwable e) {
      throw thrown(e);
    }
  }

  void destroy(long handle) {
    try {
      check("cublasDestroy", (int) destroy.invokeExact(handle));
    } catch (Throwable e) {
      throw thrown(e);
    }
  }

  /** What follows is enqueued on that stream. */
  void setStream(long handle, long stream) {
    try {
      check("cublasSetStream", (int) setStream.invokeExact(handle, stream));
    } catch (Throwable e) {
      throw thrown(e);
    }
  }

  /** c = a b, of n by n, column by column. Returns when it is enqueued. */
  void dgemm(long handle, int n, long a, long b, long c) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment one = arena.allocateFrom(JAVA_DOUBLE, 1);
      MemorySegment zero = arena.allocateFrom(JAVA_DOUBLE, 0);
      int status =
          (int)
              dgemm.invokeExact(
                  handle, NO_TRANSPOSE, NO_TRANSPOSE, n, n, n, one, a, n, b, n, zero, c, n);
      check("cublasDgemm", status);
    } catch (Throwable e) {
      throw thrown(e);
    }
  }

  private static void check(String call, int status) {
    if (status != 0) {
      throw new IllegalStateException(call + " answered " + status);
    }
  }

  /** A downcall handle declares Throwable, but throws nothing checked. */
  private static RuntimeException thrown(Throwable e) {
    if (e instanceof RuntimeException unchecked) {
      return unchecked;
    }
    if (e instanceof Error error) {
      throw error;
    }
    return new IllegalStateException(e);
  }
}
