package io.fairlead.ffi;

import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.Grid;
import io.fairlead.device.spi.ModuleImage;
import io.fairlead.ffi.cuda.TestImages;
import io.fairlead.sim.LaunchArguments;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Objects;

/**
 * The kernels that the driver's rules ask for, as CUDA has them: the number of items last. The
 * stand-in has them built in and is told their parameters; a GPU gets them in CUDA C++.
 */
final class CudaKernels {
  /** For the stand-in. */
  static final ModuleImage STAND_IN =
      new ModuleImage.Ptx(
          """
          //standin 1
          kernel number first:i64 out:ptr items:i64
          kernel add in:ptr inOut:ptr items:i64
          kernel count inOut:ptr items:i64
          kernel axpy a:f64 x:ptr y:ptr items:i64
          kernel shape out:ptr
          kernel spin nanos:i64
          kernel hold flag:ptr
          kernel nop
          kernel nullstore
          kernel assertfail
          """);

  /** For a GPU. */
  static final ModuleImage PTX = new ModuleImage.Ptx(text("rules.ptx"));

  /** The same as source. */
  static final ModuleImage.CudaSource SOURCE =
      new ModuleImage.CudaSource("rules.cu", text("rules.cu"));

  /** The same as machine code for sm_80 and sm_90. */
  static final ModuleImage.Binary FATBIN = new ModuleImage.Binary(bytes("rules.fatbin"));

  /** Kernels that only some launches can run, as FATBIN. */
  static final ModuleImage.Binary LAUNCHES = new ModuleImage.Binary(bytes("launches.fatbin"));

  /** One thread: a kernel that waits need not wait 128 times. */
  static final Grid ALONE = Grid.of(1).withBlock(1);

  private CudaKernels() {}

  /** The machine code of these kernels for one architecture alone. */
  static ModuleImage.Binary cubin(int architecture) {
    return new ModuleImage.Binary(TestImages.cubin(FATBIN.bytes(), architecture));
  }

  private static String text(String resource) {
    return new String(bytes(resource), StandardCharsets.UTF_8);
  }

  private static byte[] bytes(String resource) {
    try (InputStream stream = CudaKernels.class.getResourceAsStream(resource)) {
      return Objects.requireNonNull(stream, resource).readAllBytes();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /**
   * A kernel that runs until the answer is run.
   *
   * @param module of the stream's context, which is current; it has the kernel {@code hold}
   */
  static Runnable hold(Driver driver, long module, long stream) {
    return holdAll(driver, module, List.of(stream));
  }

  /** As {@link #hold}, with nothing made or loaded once the first stream is held. */
  static Runnable holdAll(Driver driver, long module, List<Long> streams) {
    MemorySegment flag = driver.hostAlloc(driver.current(), Long.BYTES);
    flag.set(ValueLayout.JAVA_LONG, 0, 0);
    long kernel = driver.kernel(module, "hold");
    for (long stream : streams) {
      driver.launch(stream, kernel, ALONE, new LaunchArguments().scalar(flag.address()));
    }
    return () -> {
      if (flag.scope().isAlive()) {
        flag.set(ValueLayout.JAVA_LONG, 0, 1);
      }
    };
  }

  /** Launches, if run, a kernel that stores to where nothing is. As {@link #hold}. */
  static Runnable fault(Driver driver, long module, long stream) {
    long kernel = driver.kernel(module, "nullstore");
    return () -> driver.launch(stream, kernel, ALONE, new LaunchArguments());
  }
}
