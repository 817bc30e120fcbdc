package io.fairlead.ffi.cuda;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.spi.DriverException;
import io.fairlead.device.spi.ModuleImage;
import java.util.Objects;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;

/**
 * NVIDIA's compiler, which needs no GPU: where its library is, or {@code -Dfairlead.cuda.nvrtc}.
 */
class NvrtcTest {
  private static final int H200 = 90;

  private static Nvrtc compiler() {
    Nvrtc found = Nvrtc.find(System.getProperty(CudaSettings.COMPILER_PROPERTY));
    if (found == null) {
      System.out.println(
          "!! NO NVRTC (-D" + CudaSettings.COMPILER_PROPERTY + "=PATH): its tests were NOT run");
    }
    Assumptions.assumeTrue(found != null, "no NVRTC");
    return Objects.requireNonNull(found);
  }

  private static ModuleImage.CudaSource source(String text) {
    return new ModuleImage.CudaSource("twice.cu", text);
  }

  private static final ModuleImage.CudaSource TWICE =
      source("extern \"C\" __global__ void twice(double* x) { x[threadIdx.x] *= 2; }");

  @Test
  void compilesToPtxOnce() {
    String ptx = compiler().compile(TWICE, H200);
    assertThat(ptx).contains(".target sm_90", ".entry twice(");
    assertThat(compiler().compile(source(TWICE.text()), H200)).isSameAs(ptx);
  }

  @Test
  void whatItMadeSaysWhichKernelsItHas() {
    DeviceCode code = DeviceCode.of(compiler().compile(TWICE, H200));
    assertThat(code.toString()).startsWith("PTX").endsWith("for sm_90");
    assertThat(code.kernels(H200)).containsOnlyKeys("twice");
    assertThat(code.kernels(H200).get("twice")).containsExactly(Long.BYTES);
  }

  /** A device that is newer than the compiler runs what the newest known one does. */
  @Test
  void takesTheNewestArchitectureThatItKnows() {
    assertThat(compiler().compile(TWICE, 999)).contains(".target sm_1");
  }

  @Test
  void theLogIsInTheError() {
    Nvrtc compiler = compiler();
    assertThatThrownBy(() -> compiler.compile(source("int f() { return nonsense; }"), H200))
        .isInstanceOfSatisfying(
            DriverException.class,
            e -> assertThat(e.status()).isEqualTo(DriverException.INVALID_IMAGE))
        .hasMessageContaining("twice.cu(1): error")
        .hasMessageContaining("nonsense");
  }

  @Test
  void aLibraryThatIsNotThereIsNoCompiler() {
    assertThat(Nvrtc.find("libno-such-compiler.so")).isNull();
  }
}
