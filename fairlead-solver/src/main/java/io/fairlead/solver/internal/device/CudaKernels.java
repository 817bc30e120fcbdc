package io.fairlead.solver.internal.device;

import io.fairlead.device.spi.ModuleImage;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Objects;

/**
 * The solver's kernels in CUDA C++, for a GPU: the resource {@code solver.cu}, and what {@code
 * scripts/prebuild-kernels} made of it. {@link SolverKernels} has their names and parameters,
 * {@link GpuGrids} how they are launched.
 */
final class CudaKernels {
  private static final String SOURCE = "solver.cu";
  private static final String BINARY = "solver.fatbin";
  private static final String PTX = "solver.ptx";

  private CudaKernels() {}

  /**
   * Machine code for the devices that there is some for; for others the source, where there is a
   * compiler, which knows them better than the PTX that comes last. Reads the resources; only a
   * device that takes no {@link JavaKernels} has a use for them.
   */
  static List<ModuleImage> images() {
    return List.of(new ModuleImage.Binary(bytes(BINARY)), source(), new ModuleImage.Ptx(text(PTX)));
  }

  static ModuleImage source() {
    return new ModuleImage.CudaSource(SOURCE, text(SOURCE));
  }

  /** What a loaded form is to a user. */
  static String describe(ModuleImage image) {
    return switch (image) {
      case ModuleImage.Java _ -> "in Java";
      case ModuleImage.Binary _ -> "prebuilt machine code";
      case ModuleImage.CudaSource source -> "compiled here from " + source.fileName();
      case ModuleImage.Ptx _ -> "prebuilt PTX, compiled by the driver";
    };
  }

  private static String text(String resource) {
    return new String(bytes(resource), StandardCharsets.UTF_8);
  }

  private static byte[] bytes(String resource) {
    try (InputStream file = CudaKernels.class.getResourceAsStream(resource)) {
      return Objects.requireNonNull(file, "resource " + resource).readAllBytes();
    } catch (IOException e) {
      throw new UncheckedIOException("cannot read the resource " + resource, e);
    }
  }
}
