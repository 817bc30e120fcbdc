package io.fairlead.ffi.cuda;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import io.fairlead.device.spi.DriverException;
import io.fairlead.device.spi.ModuleImage;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/**
 * Brings images into a context: PTX and binaries as they are, CUDA C++ through the compiler. Text
 * that the driver's own compiler refuses comes back with its log. Immutable; any thread.
 */
final class CudaLoader {
  private static final int LOG_BYTES = 16 << 10;
  private static final int INFO_LOG_BUFFER = 3;
  private static final int INFO_LOG_BUFFER_SIZE_BYTES = 4;
  private static final int ERROR_LOG_BUFFER = 5;
  private static final int ERROR_LOG_BUFFER_SIZE_BYTES = 6;

  private final CudaApi api;
  private final @Nullable String compiler;

  CudaLoader(CudaApi api, @Nullable String compiler) {
    this.api = api;
    this.compiler = compiler;
  }

  boolean accepts(ModuleImage image) {
    return switch (image) {
      case ModuleImage.Ptx _, ModuleImage.Binary _ -> true;
      case ModuleImage.CudaSource _ -> Nvrtc.find(compiler) != null;
      case ModuleImage.Java _ -> false;
    };
  }

  /** The context is current, and entered. */
  CudaModule load(CudaContext context, ModuleImage image, int capability) {
    try (Arena arena = Arena.ofConfined()) {
      return switch (image) {
        case ModuleImage.Ptx(String text) -> load(context, arena, arena.allocateFrom(text));
        case ModuleImage.Binary(byte[] bytes) -> load(context, arena, copy(arena, bytes));
        case ModuleImage.CudaSource source ->
            load(context, arena, arena.allocateFrom(compiler().compile(source, capability)));
        case ModuleImage.Java _ ->
            throw Status.refused(
                DriverException.INVALID_IMAGE,
                "a CUDA device runs PTX, binaries and CUDA C++, not kernels in Java");
      };
    }
  }

  private Nvrtc compiler() {
    Nvrtc found = Nvrtc.find(compiler);
    if (found == null) {
      throw CudaApi.unsupported(
          "CUDA C++ needs NVIDIA's run-time compiler, and "
              + (compiler == null ? "libnvrtc.so.13 and older" : compiler)
              + " cannot be loaded; install cuda-nvrtc, say where it is with -D"
              + CudaSettings.COMPILER_PROPERTY
              + "=PATH, or give the module as PTX or binary too",
          null);
    }
    return found;
  }

  /** With a zero behind it: the bytes may be text, whose end the driver looks for. */
  private static MemorySegment copy(Arena arena, byte[] bytes) {
    MemorySegment image = arena.allocate(bytes.length + 1L, 64);
    return image.copyFrom(MemorySegment.ofArray(bytes));
  }

  private CudaModule load(CudaContext context, Arena arena, MemorySegment image) {
    MemorySegment answer = arena.allocate(JAVA_LONG);
    MemorySegment info = arena.allocate(LOG_BYTES);
    MemorySegment errors = arena.allocate(LOG_BYTES);
    int[] names = {
      INFO_LOG_BUFFER, INFO_LOG_BUFFER_SIZE_BYTES, ERROR_LOG_BUFFER, ERROR_LOG_BUFFER_SIZE_BYTES
    };
    long[] values = {info.address(), LOG_BYTES, errors.address(), LOG_BYTES};
    int status =
        api.moduleLoadDataEx(
            answer.address(),
            image.address(),
            names.length,
            arena.allocateFrom(JAVA_INT, names).address(),
            arena.allocateFrom(JAVA_LONG, values).address());
    if (status != Status.SUCCESS) {
      context.failed(status, "cuModuleLoadDataEx"); // loses the context, if it is that
      context.checkSound();
      throw Status.of(api, status, "cuModuleLoadDataEx", log(errors, info));
    }
    CudaModule module = new CudaModule(context, answer.get(JAVA_LONG, 0));
    try {
      module.bringAll();
    } catch (DriverException e) {
      module.exit(); // nobody has it yet: unloads it
      throw e;
    }
    context.driver.handles().add(module);
    return module;
  }

  private static String log(MemorySegment errors, MemorySegment info) {
    String text = (Memory.string(errors.address()) + "\n" + Memory.string(info.address())).strip();
    return text.isEmpty() ? "The driver's compiler says no more" : text;
  }
}
