package io.fairlead.cli.join;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.device.spi.ModuleImage;
import io.fairlead.ffi.cuda.DeviceCode;
import java.io.IOException;
import java.io.InputStream;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.Objects;
import java.util.Properties;
import org.junit.jupiter.api.Test;

/** The shipped machine code is that of the source. */
class PrebuiltJoinKernelsTest {
  private static byte[] resource(String name) throws IOException {
    try (InputStream file = CudaJoinKernels.class.getResourceAsStream(name)) {
      return Objects.requireNonNull(file, name).readAllBytes();
    }
  }

  private static String sum(String resource) throws IOException, NoSuchAlgorithmException {
    byte[] digest = MessageDigest.getInstance("SHA-256").digest(resource(resource));
    return HexFormat.of().formatHex(digest);
  }

  @Test
  void isMadeOfTheSourceAsItIs() throws IOException, NoSuchAlgorithmException {
    Properties made = new Properties();
    try (InputStream file = CudaJoinKernels.class.getResourceAsStream("join.made")) {
      made.load(Objects.requireNonNull(file));
    }
    assertThat(made.getProperty("source"))
        .as("join.cu is another one than its kernels: run scripts/prebuild-kernels")
        .isEqualTo(sum("join.cu"));
    assertThat(made.getProperty("fatbin")).isEqualTo(sum("join.fatbin"));
    assertThat(made.getProperty("ptx")).isEqualTo(sum("join.ptx"));
  }

  @Test
  void hasAllKernelsForTheseDevices() {
    assertThat(CudaJoinKernels.images())
        .extracting(image -> image.getClass().getSimpleName())
        .containsExactly("Binary", "CudaSource", "Ptx");
    DeviceCode binary =
        DeviceCode.of(((ModuleImage.Binary) CudaJoinKernels.images().getFirst()).bytes());
    assertThat(binary).hasToString("sm_80, sm_90");
    DeviceCode ptx = DeviceCode.of(((ModuleImage.Ptx) CudaJoinKernels.images().getLast()).text());
    assertThat(ptx).hasToString("PTX 7.0 for sm_80");
    for (DeviceCode code : new DeviceCode[] {binary, ptx}) {
      assertThat(code.kernels(90).keySet())
          .containsExactlyInAnyOrderElementsOf(JavaJoinKernels.ALL.keySet());
    }
  }
}
