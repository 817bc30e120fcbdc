package io.fairlead.lab.examples;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.nio.file.Path;

/**
 * The functions of meter.c. They work only on the thread that opened the meter; whoever calls them
 * from another one gets a {@link MeterException}.
 */
public final class Meter {

  /** The library's own error code. */
  public static final class MeterException extends IllegalStateException {
    private static final long serialVersionUID = 1L;
    private final int code;

    MeterException(String function, int code) {
      super(function + " answers " + code + (code == 1 ? ": not open on this thread" : ""));
      this.code = code;
    }

    /** As the library gave it. */
    public int code() {
      return code;
    }
  }

  private final MethodHandle open;
  private final MethodHandle add;
  private final MethodHandle mean;
  private final MethodHandle close;

  /** Loads the library for good. Any thread. */
  @SuppressWarnings("restricted") // calling a native library is what this example is about
  public Meter(Path library) {
    SymbolLookup symbols = SymbolLookup.libraryLookup(library, Arena.global());
    open = function(symbols, "meter_open", FunctionDescriptor.of(ValueLayout.JAVA_INT));
    add =
        function(
            symbols,
            "meter_add",
            FunctionDescriptor.of(ValueLayout.JAVA_INT, ValueLayout.JAVA_DOUBLE));
    mean =
        function(
            symbols,
            "meter_mean",
            FunctionDescriptor.of(ValueLayout.JAVA_INT, ValueLayout.ADDRESS));
    close = function(symbols, "meter_close", FunctionDescriptor.of(ValueLayout.JAVA_INT));
  }

  @SuppressWarnings("restricted") // see above
  private static MethodHandle function(SymbolLookup symbols, String name, FunctionDescriptor type) {
    return Linker.nativeLinker().downcallHandle(symbols.findOrThrow(name), type);
  }

  /** Opens the calling thread's meter. */
  public void open() {
    check("meter_open", () -> (int) open.invokeExact());
  }

  /** Adds to the calling thread's meter. */
  public void add(double value) {
    check("meter_add", () -> (int) add.invokeExact(value));
  }

  /** The mean of what the calling thread's meter was given. */
  public double mean() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment result = arena.allocate(ValueLayout.JAVA_DOUBLE);
      check("meter_mean", () -> (int) mean.invokeExact(result));
      return result.get(ValueLayout.JAVA_DOUBLE, 0);
    }
  }

  /** Closes the calling thread's meter. */
  public void close() {
    check("meter_close", () -> (int) close.invokeExact());
  }

  private interface NativeCall {
    int call() throws Throwable;
  }

  private static void check(String function, NativeCall call) {
    int code;
    try {
      code = call.call();
    } catch (RuntimeException | Error e) {
      throw e;
    } catch (Throwable e) {
      throw new AssertionError(function + " threw, which no native function can", e);
    }
    if (code != 0) {
      throw new MeterException(function, code);
    }
  }
}
