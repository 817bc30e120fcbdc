package io.fairlead.ffi.cuda;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import io.fairlead.device.spi.DeviceInfo;
import io.fairlead.device.spi.DriverException;
import io.fairlead.device.spi.ModuleImage;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.Locale;
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
  private final CudaSettings.Code allowed;

  CudaLoader(CudaApi api, @Nullable String compiler, CudaSettings.Code allowed) {
    this.api = api;
    this.compiler = compiler;
    this.allowed = allowed;
  }

  boolean accepts(ModuleImage image) {
    return switch (image) {
      case ModuleImage.Ptx _, ModuleImage.Binary _ -> true;
      case ModuleImage.CudaSource _ -> Nvrtc.find(compiler) != null;
      case ModuleImage.Java _ -> false;
    };
  }

  /** Whether the image is of an allowed form, and made for such a device as far as it says. */
  boolean accepts(ModuleImage image, DeviceInfo device) {
    int architecture = device.features().architecture();
    return accepts(image)
        && isAllowed(image)
        && switch (image) {
          case ModuleImage.Ptx(String text) -> DeviceCode.of(text).fits(architecture);
          case ModuleImage.Binary(byte[] bytes) -> DeviceCode.of(bytes).fits(architecture);
          case ModuleImage.CudaSource _, ModuleImage.Java _ -> true;
        };
  }

  private boolean isAllowed(ModuleImage image) {
    return switch (allowed) {
      case ANY -> true;
      case BINARY -> image instanceof ModuleImage.Binary;
      case SOURCE -> image instanceof ModuleImage.CudaSource;
      case PTX -> image instanceof ModuleImage.Ptx;
    };
  }

  /** The context is current, and entered. */
  CudaModule load(CudaContext context, ModuleImage image) {
    if (!isAllowed(image)) {
      throw notAllowed();
    }
    int architecture = context.device.features().architecture();
    try (Arena arena = Arena.ofConfined()) {
      return switch (image) {
        case ModuleImage.Ptx(String text) ->
            load(context, arena, arena.allocateFrom(text), DeviceCode.of(text));
        case ModuleImage.Binary(byte[] bytes) ->
            load(context, arena, copy(arena, bytes), DeviceCode.of(bytes));
        case ModuleImage.CudaSource source -> {
          String text = compiler().compile(source, architecture);
          yield load(context, arena, arena.allocateFrom(text), DeviceCode.of(text));
        }
        case ModuleImage.Java _ ->
            throw Status.refused(
                DriverException.INVALID_IMAGE,
                "a CUDA device runs PTX, binaries and CUDA C++, not kernels in Java");
      };
    }
  }

  private DriverException notAllowed() {
    String no =
        allowed == CudaSettings.Code.SOURCE && Nvrtc.find(compiler) == null
            ? noCompiler() + ". "
            : "";
    return CudaApi.unsupported(
        no
            + "The setting code="
            + allowed.name().toLowerCase(Locale.ROOT)
            + " allows no other form, and the module has none of that which can be loaded here;"
            + " leave the setting out",
        null);
  }

  private Nvrtc compiler() {
    Nvrtc found = Nvrtc.find(compiler);
    if (found == null) {
      throw CudaApi.unsupported(noCompiler(), null);
    }
    return found;
  }

  private String noCompiler() {
    return "CUDA C++ needs NVIDIA's run-time compiler, and "
        + (compiler == null ? "libnvrtc.so.13 and older" : compiler)
        + " cannot be loaded; install cuda-nvrtc, say where it is with -D"
        + CudaSettings.COMPILER_PROPERTY
        + "=PATH, or give the module as PTX or binary too";
  }

  /** With a zero behind it: the bytes may be text, whose end the driver looks for. */
  private static MemorySegment copy(Arena arena, byte[] bytes) {
    MemorySegment image = arena.allocate(bytes.length + 1L, 64);
    return image.copyFrom(MemorySegment.ofArray(bytes));
  }

  private CudaModule load(CudaContext context, Arena arena, MemorySegment image, DeviceCode code) {
    DeviceInfo device = context.device;
    if (!code.fits(device.features().architecture())) {
      throw Status.refused(
          DriverException.NO_BINARY_FOR_DEVICE,
          "the module has "
              + code
              + ", none of which runs on device "
              + device.ordinal()
              + " ("
              + device.name()
              + "), which is "
              + device.features().architectureName()
              + "; build it for that too (nvcc -gencode), or give it as PTX or source besides");
    }
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
      throw Status.of(api, status, "cuModuleLoadDataEx", why(context, code, errors, info));
    }
    CudaModule module = new CudaModule(context, answer.get(JAVA_LONG, 0), code);
    try {
      module.bringAll();
    } catch (DriverException e) {
      module.exit(); // nobody has it yet: unloads it
      throw e;
    }
    context.driver.handles().add(module);
    return module;
  }

  /** What was to be loaded where, and the log: an image may be newer than the driver. */
  private String why(
      CudaContext context, DeviceCode code, MemorySegment errors, MemorySegment info) {
    return "The image is "
        + code
        + ", the device "
        + context.device.features().architectureName()
        + ", the driver for CUDA "
        + api.version()
        + ". "
        + log(errors, info);
  }

  private static String log(MemorySegment errors, MemorySegment info) {
    String text = (Memory.string(errors.address()) + "\n" + Memory.string(info.address())).strip();
    return text.isEmpty() ? "The driver's compiler says no more" : text;
  }
}
