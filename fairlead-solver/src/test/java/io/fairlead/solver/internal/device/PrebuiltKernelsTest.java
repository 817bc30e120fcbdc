package io.fairlead.solver.internal.device;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.device.spi.ModuleImage;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.Objects;
import java.util.Properties;
import org.junit.jupiter.api.Test;

/** The kernels that are shipped as machine code and PTX are those of the source beside them. */
class PrebuiltKernelsTest {
  private static final String MADE = "solver.made";

  private static byte[] resource(String name) throws IOException {
    try (InputStream file = CudaKernels.class.getResourceAsStream(name)) {
      return Objects.requireNonNull(file, name).readAllBytes();
    }
  }

  private static Properties made() throws IOException {
    Properties made = new Properties();
    try (InputStream file = CudaKernels.class.getResourceAsStream(MADE)) {
      made.load(Objects.requireNonNull(file, MADE));
    }
    return made;
  }

  private static String sum(String resource) throws IOException, NoSuchAlgorithmException {
    byte[] digest = MessageDigest.getInstance("SHA-256").digest(resource(resource));
    return HexFormat.of().formatHex(digest);
  }

  @Test
  void areMadeOfTheSourceAsItIs() throws IOException, NoSuchAlgorithmException {
    assertThat(made().getProperty("source"))
        .as("solver.cu is another one than its kernels: run scripts/prebuild-kernels")
        .isEqualTo(sum("solver.cu"));
  }

  @Test
  void areThoseThatWereMade() throws IOException, NoSuchAlgorithmException {
    assertThat(made().getProperty("fatbin")).isEqualTo(sum("solver.fatbin"));
    assertThat(made().getProperty("ptx")).isEqualTo(sum("solver.ptx"));
  }

  @Test
  void areSmall() throws IOException {
    assertThat(resource("solver.fatbin").length + resource("solver.ptx").length)
        .isLessThan(300 << 10);
  }

  @Test
  void machineCodeComesFirstAndPtxLast() {
    assertThat(CudaKernels.images())
        .extracting(image -> image.getClass().getSimpleName())
        .containsExactly("Binary", "CudaSource", "Ptx");
    assertThat(CudaKernels.images().getLast())
        .isInstanceOfSatisfying(
            ModuleImage.Ptx.class,
            ptx ->
                assertThat(ptx.text().getBytes(StandardCharsets.US_ASCII))
                    .asString(StandardCharsets.US_ASCII)
                    .startsWith(".version 7.0\n.target sm_80\n"));
  }
}
