package io.fairlead.cli.join;

import io.fairlead.device.spi.ModuleImage;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Objects;

/**
 * The join's kernels in CUDA C++, for a GPU: the resource {@code join.cu}, and what {@code
 * scripts/prebuild-kernels} made of it. {@link JoinKernels} has their names and parameters.
 */
final class CudaJoinKernels {
  private static final String SOURCE = "join.cu";
  private static final String BINARY = "join.fatbin";
  private static final String PTX = "join.ptx";

  private CudaJoinKernels() {}

  /** Machine code for the devices that there is some for, else the source, else PTX. */
  static List<ModuleImage> images() {
    return List.of(
        new ModuleImage.Binary(bytes(BINARY)),
        new ModuleImage.CudaSource(SOURCE, text(SOURCE)),
        new ModuleImage.Ptx(text(PTX)));
  }

  /** What is compiled. */
  static String source() {
    return text(SOURCE);
  }

  private static String text(String resource) {
    return new String(bytes(resource), StandardCharsets.UTF_8);
  }

  private static byte[] bytes(String resource) {
    try (InputStream file = CudaJoinKernels.class.getResourceAsStream(resource)) {
      return Objects.requireNonNull(file, "resource " + resource).readAllBytes();
    } catch (IOException e) {
      throw new UncheckedIOException("cannot read the resource " + resource, e);
    }
  }
}
