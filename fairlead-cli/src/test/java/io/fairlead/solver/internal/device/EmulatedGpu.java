package io.fairlead.solver.internal.device;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fairlead.device.spi.KernelArguments;
import io.fairlead.device.spi.ModuleImage;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collection;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;

/**
 * The kernels of a {@code .cu} file on the processor: what is shipped, compiled with g++ and {@code
 * src/test/native/emulated-gpu.cpp}, which says how it runs them. Any thread.
 */
public final class EmulatedGpu {
  private static final Path EMULATION =
      Path.of(
          System.getProperty("fairlead.root", ".."),
          "fairlead-cli/src/test/native/emulated-gpu.cpp");

  private final Path library;
  private final MethodHandle signature;
  private final MethodHandle launch;

  /** A launch: all of its blocks, their threads, and the number of items that a kernel may ask. */
  public record Launch(int blocks, int threads, long items, boolean descending) {}

  private static final class Built {
    static final EmulatedGpu GPU = build();

    private Built() {}

    private static EmulatedGpu build() {
      return of("solver.cu", text(), JavaKernels.ALL.keySet());
    }
  }

  /** Compiles kernels. The test is skipped, loudly, where there is no g++. */
  public static EmulatedGpu of(String fileName, String text, Collection<String> kernels) {
    requireCompiler();
    try {
      return new EmulatedGpu(
          compiled(Files.createTempDirectory("emulated-gpu"), fileName, text, kernels));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private EmulatedGpu(Path library) {
    this.library = library;
    SymbolLookup symbols = SymbolLookup.libraryLookup(library, Arena.global());
    Linker linker = Linker.nativeLinker();
    signature =
        linker.downcallHandle(
            symbols.findOrThrow("emulated_signature"), FunctionDescriptor.of(ADDRESS, ADDRESS));
    launch =
        linker.downcallHandle(
            symbols.findOrThrow("emulated_launch"),
            FunctionDescriptor.of(
                ADDRESS, ADDRESS, JAVA_INT, JAVA_INT, JAVA_INT, JAVA_INT, JAVA_INT, ADDRESS));
  }

  /** Builds it at the first call. The test is skipped, loudly, where there is no g++. */
  static EmulatedGpu get() {
    requireCompiler();
    return Built.GPU;
  }

  private static void requireCompiler() {
    boolean there = hasCompiler() && Files.exists(EMULATION);
    String wanted = "g++ and " + EMULATION + " are to compile kernels for the processor";
    if (!there) {
      System.err.println("!! NOT RUN: " + wanted);
    }
    assumeTrue(there, wanted);
  }

  private static boolean hasCompiler() {
    for (String folder : System.getenv().getOrDefault("PATH", "").split(":", -1)) {
      if (Files.isExecutable(Path.of(folder, "g++"))) {
        return true;
      }
    }
    return false;
  }

  private static Path compiled(
      Path folder, String fileName, String text, Collection<String> kernels) throws IOException {
    Path source = folder.resolve(fileName);
    Path library = folder.resolve("libkernels.so");
    String entries =
        kernels.stream().map(each -> "ENTRY(" + each + ")").collect(Collectors.joining(", "));
    folder.toFile().deleteOnExit();
    source.toFile().deleteOnExit();
    library.toFile().deleteOnExit();
    Files.writeString(source, text);
    Process compiler =
        new ProcessBuilder(
                "g++",
                "-std=c++17",
                "-O2",
                "-ffp-contract=off",
                "-Wall",
                "-Werror",
                "-Wno-unknown-pragmas",
                "-shared",
                "-fPIC",
                "-DKERNELS=\"" + source + "\"",
                "-DENTRIES=" + entries,
                EMULATION.toString(),
                "-o",
                library.toString())
            .redirectErrorStream(true)
            .start();
    String said = new String(compiler.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    try {
      if (!compiler.waitFor(60, TimeUnit.SECONDS) || compiler.exitValue() != 0) {
        throw new IllegalStateException("g++ does not compile " + fileName + ":\n" + said);
      }
    } catch (InterruptedException e) {
      throw new IllegalStateException("interrupted while g++ ran", e);
    }
    return library;
  }

  /** The compiled kernels, for the stand-in driver. */
  Path library() {
    return library;
  }

  /** The text that the solver ships. */
  static String text() {
    return ((ModuleImage.CudaSource) CudaKernels.source()).text();
  }

  /** The parameters of a kernel: {@code in(F64), out(F64), I32}. */
  public String signature(String kernel) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment text = (MemorySegment) signature.invokeExact(arena.allocateFrom(kernel));
      if (text.address() == 0) {
        throw new IllegalArgumentException("there is no kernel " + kernel);
      }
      return text.reinterpret(Long.MAX_VALUE).getString(0);
    } catch (RuntimeException | Error e) {
      throw e;
    } catch (Throwable e) {
      throw new AssertionError(e);
    }
  }

  /** Runs all blocks of a launch on this thread. */
  public void run(String kernel, Launch launched, KernelArguments arguments) {
    run(kernel, launched, 0, launched.blocks, arguments, arguments.count());
  }

  /**
   * Runs some blocks of a launch on this thread.
   *
   * @param count how many of the arguments are the kernel's
   * @throws IllegalStateException that says what the kernel did wrong
   */
  void run(
      String kernel, Launch launched, int first, int end, KernelArguments arguments, int count) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment fault =
          (MemorySegment)
              launch.invokeExact(
                  arena.allocateFrom(kernel),
                  launched.blocks,
                  launched.threads,
                  first,
                  end,
                  launched.descending ? 1 : 0,
                  pointers(kernel, launched, arguments, count, arena));
      if (fault.address() != 0) {
        throw new IllegalStateException(fault.reinterpret(Long.MAX_VALUE).getString(0));
      }
    } catch (RuntimeException | Error e) {
      throw e;
    } catch (Throwable e) {
      throw new AssertionError(e);
    }
  }

  /** As a CUDA driver does: the arguments in order, and the items where the kernel has one more. */
  private MemorySegment pointers(
      String kernel, Launch launched, KernelArguments arguments, int count, Arena arena) {
    int takes = signature(kernel).split(", ", -1).length;
    if (takes != count && takes != count + 1) {
      throw new IllegalArgumentException(
          kernel + " takes " + takes + " arguments, but " + count + " came");
    }
    MemorySegment values = arena.allocate(JAVA_LONG, count + 1L);
    MemorySegment pointers = arena.allocate(ADDRESS, count + 1L);
    for (int i = 0; i <= count; i++) {
      long value = i == count ? launched.items : bits(arguments, i);
      values.setAtIndex(JAVA_LONG, i, value);
      pointers.setAtIndex(ADDRESS, i, values.asSlice(8L * i, 8));
    }
    return pointers;
  }

  private static long bits(KernelArguments arguments, int index) {
    return arguments.isBuffer(index) ? arguments.buffer(index).address() : arguments.bits(index);
  }
}
