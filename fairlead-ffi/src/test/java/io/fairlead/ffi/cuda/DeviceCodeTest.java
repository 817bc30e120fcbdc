package io.fairlead.ffi.cuda;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import java.util.Objects;
import java.util.Random;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** What is read of images: of those that nvcc made, of PTX, and of anything else. */
class DeviceCodeTest {

  private static byte[] resource(String name) {
    try (InputStream file = DeviceCodeTest.class.getResourceAsStream("/io/fairlead/ffi/" + name)) {
      return Objects.requireNonNull(file, name).readAllBytes();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static Map<String, String> kernels(DeviceCode code, int device) {
    return code.kernels(device).entrySet().stream()
        .collect(Collectors.toMap(Map.Entry::getKey, each -> Arrays.toString(each.getValue())));
  }

  private static final Map<String, String> RULES =
      Map.of(
          "number", "[8, 8, 8]",
          "add", "[8, 8, 8]",
          "count", "[8, 8]",
          "axpy", "[8, 8, 8, 8]",
          "spin", "[8]",
          "hold", "[8]",
          "nop", "[]",
          "nullstore", "[]",
          "assertfail", "[]");

  @Test
  void aFatbinHasItsArchitecturesAndKernels() {
    DeviceCode code = DeviceCode.of(resource("rules.fatbin"));
    assertThat(code).hasToString("sm_80, sm_90");
    for (int device : new int[] {80, 86, 89, 90}) {
      assertThat(code.fits(device)).as("sm_%s", device).isTrue();
      assertThat(kernels(code, device)).isEqualTo(RULES);
    }
    for (int device : new int[] {70, 75, 100, 120}) {
      assertThat(code.fits(device)).as("sm_%s", device).isFalse();
      assertThat(kernels(code, device)).isEmpty();
    }
  }

  @Test
  void parametersHaveSizesOfTheirOwn() {
    DeviceCode code = DeviceCode.of(resource("launches.fatbin"));
    assertThat(kernels(code, 90))
        .isEqualTo(Map.of("ring", "[8, 8, 8]", "cluster", "[8, 8]", "turn", "[8, 4]"));
  }

  /** The part of the fatbin that is for sm_90, by itself. */
  @Test
  void aCubinIsForOneArchitecture() {
    DeviceCode code = DeviceCode.of(TestImages.cubin(resource("rules.fatbin"), 90));
    assertThat(code).hasToString("sm_90");
    assertThat(code.fits(90)).isTrue();
    assertThat(code.fits(80)).isFalse();
    assertThat(kernels(code, 90)).isEqualTo(RULES);
  }

  @Test
  void ptxOfACompilerIsRead() {
    String text = new String(resource("rules.ptx"), StandardCharsets.UTF_8);
    DeviceCode code = DeviceCode.of(text);
    assertThat(code).hasToString("PTX 7.0 for sm_80");
    assertThat(kernels(code, 100)).isEqualTo(RULES);
    assertThat(kernels(DeviceCode.of(text.getBytes(StandardCharsets.UTF_8)), 80)).isEqualTo(RULES);
  }

  @Test
  void parametersInPtxHaveTypes() {
    DeviceCode code =
        DeviceCode.of(
            """
            // .entry comment(.param .u64 x)
            .version 8.3
            .target sm_75, debug /* .target sm_99 */
            .entry many(
              .param .u8 a, .param .s16 b, .param .f32 c, .param .b64 d,
              .param .u64 .ptr .global .align 8 e,
              .param .align 8 .b8 f[24]) { ret; }
            .visible .entry odd(.param .f16x2 a) { ret; }
            .weak .entry $none$ { ret; }
            """);
    assertThat(code).hasToString("PTX 8.3 for sm_75");
    assertThat(kernels(code, 80)).isEqualTo(Map.of("many", "[1, 2, 4, 8, 8, 24]", "$none$", "[]"));
  }

  @ParameterizedTest
  @CsvSource({
    "sm_80, 75, false", "sm_80, 80, true", "sm_80, 120, true",
    "sm_90a, 90, true", "sm_90a, 100, false", "sm_90a, 80, false",
    "sm_100f, 100, true", "sm_100f, 103, true", "sm_100f, 120, false"
  })
  void ptxRunsOnLaterDevicesUnlessItIsForOne(String target, int device, boolean fits) {
    DeviceCode code = DeviceCode.of(".version 8.6\n.target " + target + "\n.entry k() { ret; }");
    assertThat(code.fits(device)).isEqualTo(fits);
    assertThat(code).hasToString("PTX 8.6 for " + target);
  }

  /** As nvcc marks sm_90a and sm_100f, whose code looks like that of sm_90 and sm_100. */
  @ParameterizedTest
  @CsvSource({"0x100000, 90, true", "0x100000, 80, false", "0x200000, 90, true"})
  void partsOfAFatbinMayBeForOneDevice(String flags, int device, boolean fits) {
    byte[] image = resource("rules.fatbin");
    ByteBuffer bytes = ByteBuffer.wrap(image).order(ByteOrder.LITTLE_ENDIAN);
    int second = 16 + bytes.getInt(16 + 4) + (int) bytes.getLong(16 + 8);
    int last = bytes.getInt(second + 28);
    assertThat(last).isEqualTo(90);
    bytes.putInt(second + 40, bytes.getInt(second + 40) | Integer.decode(flags));
    bytes.putInt(16 + 28, 70); // so that the first is for others
    assertThat(DeviceCode.of(image).fits(device)).isEqualTo(fits);
  }

  @Test
  void ofCompressedPartsOnlyTheArchitectureIsKnown() {
    byte[] image = resource("rules.fatbin");
    ByteBuffer.wrap(image).order(ByteOrder.LITTLE_ENDIAN).putInt(16 + 16, 1234);
    DeviceCode code = DeviceCode.of(image);
    assertThat(code.fits(80)).isTrue();
    assertThat(code.kernels(80)).isEmpty();
    assertThat(kernels(code, 90)).isEqualTo(RULES);
  }

  @ParameterizedTest
  @ValueSource(strings = {"", "x", "//standin 1\nkernel nop\n", ".version 7.0\n", "\u007fELF"})
  void whatCannotBeReadIsLeftToTheDriver(String text) {
    DeviceCode code = DeviceCode.of(text.getBytes(StandardCharsets.ISO_8859_1));
    assertThat(code.isKnown()).isFalse();
    assertThat(code.fits(90)).isTrue();
    assertThat(code.kernels(90)).isEmpty();
    assertThat(code).hasToString("code of a form that is not known");
  }

  /** Nothing in an image may throw or never end, wherever it is cut or changed. */
  @Test
  void damagedImagesDoNoHarm() {
    byte[] image = resource("rules.fatbin");
    Random random = new Random(7);
    int understood =
        IntStream.range(0, 2_000)
            .map(
                i -> {
                  byte[] damaged =
                      Arrays.copyOf(
                          image, i % 2 == 0 ? random.nextInt(image.length) : image.length);
                  for (int k = 0; k < 20 && damaged.length > 0; k++) {
                    int at =
                        random.nextInt(k < 10 ? Math.min(400, damaged.length) : damaged.length);
                    damaged[at] = (byte) random.nextInt();
                  }
                  return DeviceCode.of(damaged).kernels(90).size();
                })
            .sum();
    assertThat(understood).isNotNegative();
  }
}
