package io.fairlead.solver.internal.device;

import io.fairlead.device.spi.ModuleImage;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.Objects;

/**
 * The solver's kernels as CUDA C++, for a GPU: the resource {@code solver.cu}. {@link
 * SolverKernels} has their names and parameters, {@link GpuGrids} how they are launched.
 */
final class CudaKernels {
  private static final String FILE = "solver.cu";

  private CudaKernels() {}

  /** Reads it. Only a device that takes no {@link JavaKernels} has a use for it. */
  static ModuleImage source() {
    try (InputStream file = CudaKernels.class.getResourceAsStream(FILE)) {
      byte[] text = Objects.requireNonNull(file, "resource " + FILE).readAllBytes();
      return new ModuleImage.CudaSource(FILE, new String(text, StandardCharsets.UTF_8));
    } catch (IOException e) {
      throw new UncheckedIOException("cannot read the resource " + FILE, e);
    }
  }
}
