package io.fairlead.ffi.cuda;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.Objects;
import java.util.Properties;
import org.junit.jupiter.api.Test;

/** The shipped machine code of packs is that of the source. */
class PrebuiltPiecesTest {
  private static byte[] resource(String name) throws IOException {
    try (InputStream file = CudaPieces.class.getResourceAsStream(name)) {
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
    try (InputStream file = CudaPieces.class.getResourceAsStream("pieces.made")) {
      made.load(Objects.requireNonNull(file));
    }
    assertThat(made.getProperty("source"))
        .as("pieces.cu is another one than its kernel: run scripts/prebuild-kernels")
        .isEqualTo(sum("pieces.cu"));
    assertThat(made.getProperty("fatbin")).isEqualTo(sum("pieces.fatbin"));
    assertThat(made.getProperty("ptx")).isEqualTo(sum("pieces.ptx"));
  }

  @Test
  void hasTheKernelForTheseDevices() throws IOException {
    DeviceCode binary = DeviceCode.of(resource("pieces.fatbin"));
    assertThat(binary).hasToString("sm_80, sm_90");
    DeviceCode ptx = DeviceCode.of(new String(resource("pieces.ptx"), StandardCharsets.UTF_8));
    for (DeviceCode code : new DeviceCode[] {binary, ptx}) {
      assertThat(code.kernels(90).keySet()).containsExactly("fairlead_copy_pieces");
    }
  }
}
