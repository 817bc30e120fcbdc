package io.fairlead.cli.torture;

import static io.fairlead.device.Param.I64;
import static io.fairlead.device.Param.in;
import static io.fairlead.device.Param.inOut;
import static io.fairlead.device.Param.out;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import io.fairlead.device.Kernel;
import io.fairlead.device.KernelModule;
import io.fairlead.device.ModuleSource;
import io.fairlead.device.spi.Grid;
import io.fairlead.device.spi.JavaKernel;
import io.fairlead.device.spi.KernelArguments;
import io.fairlead.device.spi.ModuleImage;
import io.fairlead.memory.Device;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.VarHandle;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/**
 * The kernels, in Java for the host device and as PTX for a GPU; {@code torture.cu} says the same
 * in CUDA C++. Any thread; immutable once loaded.
 */
final class TortureKernels implements AutoCloseable {
  private static final String WRITE = "writeWords";
  private static final String MOVE = "moveWords";
  private static final String ADD = "addToWords";
  private static final String CHECK = "checkWords";
  private static final String PTX = "torture.ptx";

  private static final VarHandle WORD = JAVA_LONG.varHandle();

  private static final Map<String, JavaKernel> JAVA =
      Map.of(
          WRITE, TortureKernels::write,
          MOVE, TortureKernels::move,
          ADD, TortureKernels::add,
          CHECK, TortureKernels::check);

  /** Words worth a worker of the host device. */
  private static final int GRAIN = 8192;

  private final KernelModule module;

  /** {@code (out words, n, base)}. */
  final Kernel write;

  /** {@code (from, out to, n, by)}: adds {@code by} on the way. */
  final Kernel move;

  /** {@code (inOut words, n, by)}. */
  final Kernel add;

  /** {@code (words, inOut wrong, n, base)}: counts in {@code wrong}. */
  final Kernel check;

  private TortureKernels(KernelModule module) {
    this.module = module;
    write = module.kernel(WRITE, out(I64), I64, I64);
    move = module.kernel(MOVE, in(I64), out(I64), I64, I64);
    add = module.kernel(ADD, inOut(I64), I64, I64);
    check = module.kernel(CHECK, in(I64), inOut(I64), I64, I64);
  }

  /** Blocks its task while the driver loads the module. */
  static TortureKernels load(Device device) {
    List<ModuleImage> images = List.of(new ModuleImage.Java(JAVA), new ModuleImage.Ptx(ptx()));
    List<ModuleImage> taken = images.stream().filter(device.context().driver()::accepts).toList();
    return new TortureKernels(device.load(new ModuleSource("fairlead-torture", taken)));
  }

  private static String ptx() {
    try (InputStream file = TortureKernels.class.getResourceAsStream(PTX)) {
      return new String(
          Objects.requireNonNull(file, "resource " + PTX).readAllBytes(), StandardCharsets.UTF_8);
    } catch (IOException e) {
      throw new UncheckedIOException("cannot read the resource " + PTX, e);
    }
  }

  static Grid each(long words) {
    return Grid.of(words).withGrain(GRAIN);
  }

  @Override
  public void close() {
    module.close();
  }

  // --- in Java ------------------------------------------------------------------------------

  private static void write(KernelArguments a, long begin, long end) {
    MemorySegment words = a.buffer(0);
    long base = a.i64(2);
    for (long i = begin; i < end; i++) {
      words.setAtIndex(JAVA_LONG, i, base + i * Content.STEP);
    }
  }

  private static void move(KernelArguments a, long begin, long end) {
    MemorySegment from = a.buffer(0);
    MemorySegment to = a.buffer(1);
    long by = a.i64(3);
    for (long i = begin; i < end; i++) {
      to.setAtIndex(JAVA_LONG, i, from.getAtIndex(JAVA_LONG, i) + by);
    }
  }

  private static void add(KernelArguments a, long begin, long end) {
    MemorySegment words = a.buffer(0);
    long by = a.i64(2);
    for (long i = begin; i < end; i++) {
      words.setAtIndex(JAVA_LONG, i, words.getAtIndex(JAVA_LONG, i) + by);
    }
  }

  private static void check(KernelArguments a, long begin, long end) {
    MemorySegment words = a.buffer(0);
    long base = a.i64(3);
    long wrong = 0;
    for (long i = begin; i < end; i++) {
      wrong += words.getAtIndex(JAVA_LONG, i) == base + i * Content.STEP ? 0 : 1;
    }
    if (wrong > 0) {
      long _ = (long) WORD.getAndAdd(a.buffer(1), 0L, wrong);
    }
  }
}
