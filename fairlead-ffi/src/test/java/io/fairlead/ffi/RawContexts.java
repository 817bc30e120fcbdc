package io.fairlead.ffi;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static org.assertj.core.api.Assertions.assertThat;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;

/**
 * Current contexts as foreign code handles them: the driver's own functions, and a context that
 * Fairlead did not make.
 */
final class RawContexts implements AutoCloseable {
  private final SymbolLookup symbols;
  private final MethodHandle getCurrent;
  private final MethodHandle setCurrent;
  private final boolean own;
  private final int device;
  private final long foreign;

  /**
   * Makes the foreign context; none is current on the calling thread afterwards.
   *
   * @param device where a context of its own is made, or, with a driver that has no function for
   *     that, whose primary context is taken
   */
  RawContexts(String library, int device) {
    this.symbols = SymbolLookup.libraryLookup(library, Arena.global());
    this.getCurrent = function("cuCtxGetCurrent", JAVA_LONG);
    this.setCurrent = function("cuCtxSetCurrent", JAVA_LONG);
    this.own = symbols.find("cuCtxCreate_v2").isPresent();
    this.device = device;
    assertThat(call(function("cuInit", JAVA_INT), 0)).isZero();
    this.foreign = make();
    makeCurrent(0);
  }

  private MethodHandle function(String name, MemoryLayout... parameters) {
    return Linker.nativeLinker()
        .downcallHandle(
            symbols.find(name).orElseThrow(() -> new AssertionError("no " + name)),
            FunctionDescriptor.of(JAVA_INT, parameters));
  }

  private static int call(MethodHandle function, Object... arguments) {
    try {
      return (int) function.invokeWithArguments(arguments);
    } catch (Throwable e) {
      throw new AssertionError("a native function threw", e);
    }
  }

  private long make() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment answer = arena.allocate(JAVA_LONG);
      MethodHandle maker =
          own
              ? function("cuCtxCreate_v2", JAVA_LONG, JAVA_INT, JAVA_INT)
              : function("cuDevicePrimaryCtxRetain", JAVA_LONG, JAVA_INT);
      int status =
          own ? call(maker, answer.address(), 0, device) : call(maker, answer.address(), device);
      assertThat(status).isZero();
      return answer.get(JAVA_LONG, 0);
    }
  }

  /** The foreign context. */
  long foreign() {
    return foreign;
  }

  /** What the driver says is current on the calling OS thread, or 0. */
  long current() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment answer = arena.allocate(JAVA_LONG);
      int status = (int) getCurrent.invokeExact(answer.address());
      assertThat(status).isZero();
      return answer.get(JAVA_LONG, 0);
    } catch (RuntimeException | Error e) {
      throw e;
    } catch (Throwable e) {
      throw new AssertionError("cuCtxGetCurrent threw", e);
    }
  }

  /** Makes it current on the calling OS thread; 0: none. */
  void makeCurrent(long context) {
    try {
      int status = (int) setCurrent.invokeExact(context);
      assertThat(status).isZero();
    } catch (RuntimeException | Error e) {
      throw e;
    } catch (Throwable e) {
      throw new AssertionError("cuCtxSetCurrent threw", e);
    }
  }

  /** Ends the foreign context. */
  @Override
  public void close() {
    int status =
        own
            ? call(function("cuCtxDestroy_v2", JAVA_LONG), foreign)
            : call(function("cuDevicePrimaryCtxRelease_v2", JAVA_INT), device);
    assertThat(status).isZero();
  }
}
