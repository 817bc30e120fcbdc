package io.fairlead.ffi.cuda;

import io.fairlead.device.spi.DriverException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.LongStream;
import org.jspecify.annotations.Nullable;

/**
 * Loaded code, and the kernels of it that somebody asked for.
 *
 * <pre>
 * field   | writer            | reader | mode, guard
 * kernels | who finds another | any    | CAS: a list that only grows
 * </pre>
 */
final class CudaModule extends CudaObject {
  private static final int MAX_THREADS_PER_BLOCK = 0;

  private record Known(CudaKernel kernel, @Nullable Known next) {}

  private final CudaContext context;
  private final long raw;
  private final DeviceCode code;
  private final AtomicReference<@Nullable Known> kernels = new AtomicReference<>();

  /**
   * @param code what the image said of itself
   */
  CudaModule(CudaContext context, long raw, DeviceCode code) {
    this.context = context;
    this.raw = raw;
    this.code = code;
  }

  /** Bytes of each parameter of a kernel as the image has it; null if it cannot be read there. */
  int @Nullable [] sizes(String kernel) {
    return kernels().get(kernel);
  }

  private Map<String, int[]> kernels() {
    return code.kernels(context.device.features().architecture());
  }

  /** The kernel of this name. The caller has entered. */
  CudaKernel kernel(String name) {
    for (Known each = kernels.get(); each != null; each = each.next) {
      if (each.kernel.name().equals(name)) {
        return each.kernel;
      }
    }
    // two may find the same at once: both handles are good
    long function = function(name);
    bring(function);
    CudaKernel found = CudaKernel.of(this, name, function);
    context.driver.handles().add(found);
    Known first;
    do {
      first = kernels.get();
    } while (!kernels.compareAndSet(first, new Known(found, first)));
    return found;
  }

  private long function(String name) {
    CudaApi api = context.api;
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment answer = arena.allocate(ValueLayout.JAVA_LONG);
      int status = api.moduleGetFunction(answer.address(), raw, arena.allocateFrom(name).address());
      if (status == DriverException.NOT_FOUND) {
        throw Status.of(api, status, "cuModuleGetFunction(" + name + ")", others());
      }
      context.check(status, "cuModuleGetFunction");
      return answer.get(ValueLayout.JAVA_LONG, 0);
    }
  }

  private String others() {
    List<String> told = names();
    List<String> names = told.isEmpty() ? kernels().keySet().stream().sorted().toList() : told;
    return names.isEmpty()
        ? "The driver does not say which kernels the module has (CUDA 12.4 and newer do); a kernel"
            + " in CUDA C++ is found by this name if it is extern \"C\""
        : "The module has " + String.join(", ", names);
  }

  private List<String> names() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment name = arena.allocate(ValueLayout.JAVA_LONG);
      return LongStream.of(functions())
          .filter(each -> context.api.funcGetName(name.address(), each) == Status.SUCCESS)
          .mapToObj(each -> Memory.string(name.get(ValueLayout.JAVA_LONG, 0)))
          .sorted()
          .toList();
    }
  }

  /** All there are, as far as the driver says. */
  private long[] functions() {
    CudaApi api = context.api;
    if (!api.hasFunctionNames()) {
      return new long[0];
    }
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment count = arena.allocate(ValueLayout.JAVA_INT);
      if (api.moduleGetFunctionCount(count.address(), raw) != Status.SUCCESS) {
        return new long[0];
      }
      int functions = count.get(ValueLayout.JAVA_INT, 0);
      MemorySegment found = arena.allocate(ValueLayout.JAVA_LONG, Math.max(functions, 1));
      return api.moduleEnumerateFunctions(found.address(), functions, raw) == Status.SUCCESS
          ? found.asSlice(0, (long) Long.BYTES * functions).toArray(ValueLayout.JAVA_LONG)
          : new long[0];
    }
  }

  /**
   * Brings all code to the device now, as far as the driver says what there is. CUDA would do it at
   * a kernel's first launch, and may wait there for kernels that run: for one that waits for that
   * launch, for ever.
   */
  void bringAll() {
    for (long function : functions()) {
      bring(function);
    }
  }

  /** Nothing to do for one that is there. The context is current. */
  private void bring(long function) {
    CudaApi api = context.api;
    int status = api.hasFunctionLoading() ? api.funcLoad(function) : DriverException.NOT_SUPPORTED;
    if (status != DriverException.NOT_SUPPORTED) {
      context.check(status, "cuFuncLoad");
    } else {
      // before CUDA 12.4 there is no call for it, but who asks what a kernel is like has it loaded
      Scratch scratch = Scratch.take();
      try {
        context.check(
            api.funcGetAttribute(scratch.answer(), MAX_THREADS_PER_BLOCK, function),
            "cuFuncGetAttribute");
      } finally {
        scratch.giveBack();
      }
    }
  }

  /** The module's handle is gone: so are those of its kernels. */
  void forgetKernels() {
    for (Known each = kernels.get(); each != null; each = each.next) {
      context.driver.handles().remove(each.kernel);
    }
  }

  @Override
  Kind kind() {
    return Kind.MODULE;
  }

  @Override
  CudaContext context() {
    return context;
  }

  @Override
  void dispose() {
    context.disposing("cuModuleUnload", () -> context.api.moduleUnload(raw));
  }
}
