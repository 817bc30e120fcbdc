package io.fairlead.solver.internal.device;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fairlead.device.spi.ModuleImage;
import io.fairlead.ffi.cuda.DeviceCode;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** What the shipped machine code and PTX say of themselves is what the source says. */
@Timeout(120)
class PrebuiltCodeTest {
  private static final Path ROOT =
      Path.of(System.getProperty("fairlead.root", "..")).toAbsolutePath();

  @TempDir Path folder;

  private static DeviceCode binary() {
    return DeviceCode.of(((ModuleImage.Binary) CudaKernels.images().getFirst()).bytes());
  }

  private static DeviceCode ptx() {
    return DeviceCode.of(((ModuleImage.Ptx) CudaKernels.images().getLast()).text());
  }

  private static Map<String, String> kernels(DeviceCode code, int device) {
    return code.kernels(device).entrySet().stream()
        .collect(Collectors.toMap(Map.Entry::getKey, each -> Arrays.toString(each.getValue())));
  }

  @Test
  void itIsForTheseDevices() {
    assertThat(binary()).hasToString("sm_80, sm_90");
    assertThat(ptx()).hasToString("PTX 7.0 for sm_80");
    for (int device : new int[] {100, 103, 120, 121}) {
      assertThat(binary().fits(device)).isFalse();
      assertThat(ptx().fits(device)).isTrue();
    }
  }

  @Test
  void itHasTheKernelsOfTheSourceWithTheirParameters() {
    EmulatedGpu gpu = EmulatedGpu.get();
    Map<String, String> expected =
        JavaKernels.ALL.keySet().stream()
            .collect(Collectors.toMap(name -> name, name -> sizes(gpu.signature(name))));
    assertThat(kernels(binary(), 80)).isEqualTo(expected);
    assertThat(kernels(binary(), 90)).isEqualTo(expected);
    assertThat(kernels(ptx(), 90)).isEqualTo(expected);
  }

  private static String sizes(String signature) {
    return Stream.of(signature.split(", ", -1))
        .map(each -> each.equals("I32") ? "4" : each.equals("I8") ? "1" : "8")
        .collect(Collectors.joining(", ", "[", "]"));
  }

  /** Where there is a compiler, what it makes now is what is shipped. */
  @Test
  void aCompilerMakesTheSame() throws IOException, InterruptedException {
    String version = compilerVersion();
    List<String> command = new ArrayList<>(List.of("bash"));
    command.add(ROOT.resolve("scripts/prebuild-kernels").toString());
    command.add(folder.toString());
    Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
    String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    assertThat(process.waitFor(100, TimeUnit.SECONDS)).as(said).isTrue();
    assertThat(process.exitValue()).as(said).isZero();
    DeviceCode made = DeviceCode.of(Files.readAllBytes(folder.resolve("solver.fatbin")));
    assertThat(kernels(made, 90)).isEqualTo(kernels(binary(), 90));
    Properties shipped = new Properties();
    try (InputStream file = CudaKernels.class.getResourceAsStream("solver.made")) {
      shipped.load(Objects.requireNonNull(file));
    }
    if (version.equals(shipped.getProperty("compiler"))) {
      Properties now = new Properties();
      try (InputStream file = Files.newInputStream(folder.resolve("solver.made"))) {
        now.load(file);
      }
      assertThat(now).isEqualTo(shipped);
    }
  }

  private static String compilerVersion() throws IOException, InterruptedException {
    Path script = ROOT.resolve("scripts/prebuild-kernels");
    String ask =
        "PATH=$PATH:/usr/local/cuda/bin; nvcc --version 2>/dev/null | sed -n 's/.*release.*, V//p'";
    Process process = new ProcessBuilder("bash", "-c", ask).start();
    String version = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    process.waitFor();
    boolean there = Files.exists(script) && !version.isBlank();
    String wanted = "nvcc and " + script + " are to compile solver.cu";
    if (!there) {
      System.err.println("!! NOT RUN: " + wanted);
    }
    assumeTrue(there, wanted);
    return version.strip();
  }
}
