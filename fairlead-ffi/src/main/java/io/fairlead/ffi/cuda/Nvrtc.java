package io.fairlead.ffi.cuda;

import static io.fairlead.ffi.posix.ForeignCall.unexpected;
import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import io.fairlead.device.spi.DriverException;
import io.fairlead.device.spi.ModuleImage;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/**
 * NVIDIA's run-time compiler, from CUDA C++ to PTX. Its library comes with the CUDA toolkit, not
 * with the driver, and is loaded when something is to be compiled first. What was compiled is kept
 * for the life of the process, up to {@link #CACHED_MAX} programs.
 *
 * <p>Threads: any; compiling blocks for tenths of a second, so it is done where modules are loaded.
 */
final class Nvrtc {
  /** More programs than a process has; a program that generates source must not fill the heap. */
  private static final int CACHED_MAX = 256;

  private static final String[] USUAL = {
    "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"
  };

  private static final Map<String, Nvrtc> LOADED = new ConcurrentHashMap<>();
  private static final Map<Program, String> CACHE = new ConcurrentHashMap<>();

  private record Program(String library, int architecture, ModuleImage.CudaSource source) {}

  private final String library;
  private final MethodHandle create;
  private final MethodHandle compile;
  private final MethodHandle resultSize;
  private final MethodHandle result;
  private final MethodHandle logSize;
  private final MethodHandle log;
  private final MethodHandle destroy;
  private final MethodHandle errorString;
  private final MethodHandle architectureCount;
  private final MethodHandle architectures;

  private Nvrtc(String library, SymbolLookup symbols) {
    this.library = library;
    create =
        handle(
            symbols, "nvrtcCreateProgram", ADDRESS, ADDRESS, ADDRESS, JAVA_INT, ADDRESS, ADDRESS);
    compile = handle(symbols, "nvrtcCompileProgram", ADDRESS, JAVA_INT, ADDRESS);
    resultSize = handle(symbols, "nvrtcGetPTXSize", ADDRESS, ADDRESS);
    result = handle(symbols, "nvrtcGetPTX", ADDRESS, ADDRESS);
    logSize = handle(symbols, "nvrtcGetProgramLogSize", ADDRESS, ADDRESS);
    log = handle(symbols, "nvrtcGetProgramLog", ADDRESS, ADDRESS);
    destroy = handle(symbols, "nvrtcDestroyProgram", ADDRESS);
    architectureCount = handle(symbols, "nvrtcGetNumSupportedArchs", ADDRESS);
    architectures = handle(symbols, "nvrtcGetSupportedArchs", ADDRESS);
    errorString =
        Linker.nativeLinker()
            .downcallHandle(
                symbol(symbols, "nvrtcGetErrorString"), FunctionDescriptor.of(ADDRESS, JAVA_INT));
  }

  private static MethodHandle handle(
      SymbolLookup symbols, String name, MemoryLayout... parameters) {
    return Linker.nativeLinker()
        .downcallHandle(symbol(symbols, name), FunctionDescriptor.of(JAVA_INT, parameters));
  }

  private static MemorySegment symbol(SymbolLookup symbols, String name) {
    return symbols
        .find(name)
        .orElseThrow(() -> CudaApi.unsupported("the compiler library has no " + name, null));
  }

  // --- loading ----------------------------------------------------------------------------------

  /**
   * The compiler, or null where there is none.
   *
   * @param library its file, or null for the usual names
   */
  static @Nullable Nvrtc find(@Nullable String library) {
    for (String name : library == null ? USUAL : new String[] {library}) {
      Nvrtc known = LOADED.get(name);
      if (known != null) {
        return known;
      }
      SymbolLookup symbols = symbols(name);
      if (symbols != null) {
        Nvrtc loaded = new Nvrtc(name, symbols);
        Nvrtc first = LOADED.putIfAbsent(name, loaded);
        return first == null ? loaded : first;
      }
    }
    return null;
  }

  private static @Nullable SymbolLookup symbols(String name) {
    try {
      return SymbolLookup.libraryLookup(name, Arena.global());
    } catch (IllegalArgumentException e) {
      return null; // not under this name
    }
  }

  // --- compiling --------------------------------------------------------------------------------

  /**
   * Compiles to PTX.
   *
   * @param device the device's compute capability, times ten: 90
   * @throws DriverException INVALID_IMAGE with the compiler's log
   */
  String compile(ModuleImage.CudaSource source, int device) {
    Program program = new Program(library, architecture(device), source);
    String known = CACHE.get(program);
    if (known != null) {
      return known;
    }
    String compiled = compile(program);
    if (CACHE.size() < CACHED_MAX) {
      CACHE.put(program, compiled);
    }
    return compiled;
  }

  /** The newest architecture that the compiler knows and the device is not older than. */
  private int architecture(int device) {
    int[] known = supported();
    return IntStream.of(known).filter(each -> each <= device).max().orElse(device);
  }

  private int[] supported() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment count = arena.allocate(JAVA_INT);
      check((int) architectureCount.invokeExact(count), "nvrtcGetNumSupportedArchs");
      MemorySegment all = arena.allocate(JAVA_INT, Math.max(1, count.get(JAVA_INT, 0)));
      check((int) architectures.invokeExact(all), "nvrtcGetSupportedArchs");
      return all.asSlice(0, 4L * count.get(JAVA_INT, 0)).toArray(JAVA_INT);
    } catch (Throwable e) {
      throw unexpected("nvrtcGetSupportedArchs", e);
    }
  }

  private String compile(Program program) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment answer = arena.allocate(ADDRESS);
      check(
          (int)
              create.invokeExact(
                  answer,
                  arena.allocateFrom(program.source.text()),
                  arena.allocateFrom(program.source.fileName()),
                  0,
                  MemorySegment.NULL,
                  MemorySegment.NULL),
          "nvrtcCreateProgram");
      try {
        return compile(arena, answer.get(ADDRESS, 0), program);
      } finally {
        int ignored = (int) destroy.invokeExact(answer);
      }
    } catch (Throwable e) {
      throw unexpected("nvrtcCompileProgram", e);
    }
  }

  private String compile(Arena arena, MemorySegment handle, Program program) throws Throwable {
    List<String> options = new ArrayList<>();
    options.add("--gpu-architecture=compute_" + program.architecture);
    options.add("--device-as-default-execution-space");
    MemorySegment array = arena.allocate(ADDRESS, options.size());
    for (int i = 0; i < options.size(); i++) {
      array.setAtIndex(ADDRESS, i, arena.allocateFrom(options.get(i)));
    }
    int status = (int) compile.invokeExact(handle, options.size(), array);
    if (status != Status.SUCCESS) {
      throw Status.refused(
          DriverException.INVALID_IMAGE,
          program.source.fileName()
              + " does not compile for compute_"
              + program.architecture
              + " ("
              + describe(status)
              + "):\n"
              + text(arena, handle, logSize, log));
    }
    return text(arena, handle, resultSize, result);
  }

  private String text(Arena arena, MemorySegment handle, MethodHandle sizeOf, MethodHandle textOf)
      throws Throwable {
    MemorySegment size = arena.allocate(JAVA_LONG);
    check((int) sizeOf.invokeExact(handle, size), "nvrtc's size of its text");
    MemorySegment text = arena.allocate(Math.max(1, size.get(JAVA_LONG, 0)));
    check((int) textOf.invokeExact(handle, text), "nvrtc's text");
    return text.getString(0);
  }

  private void check(int status, String call) {
    if (status != Status.SUCCESS) {
      throw Status.refused(DriverException.INVALID_IMAGE, call + ": " + describe(status));
    }
  }

  private String describe(int status) {
    try {
      MemorySegment text = (MemorySegment) errorString.invokeExact(status);
      return Memory.string(text.address());
    } catch (Throwable e) {
      throw unexpected("nvrtcGetErrorString", e);
    }
  }
}
