package io.fairlead.ffi;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverException;
import io.fairlead.device.spi.DriverProvider;
import io.fairlead.device.spi.DriverProvider.Probe;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.ServiceLoader;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;
import org.junit.jupiter.api.io.TempDir;

class CudaDriverProviderTest {

  private static String reason(DriverProvider provider) {
    Probe probe = provider.probe();
    assertThat(probe).isInstanceOf(Probe.Unavailable.class);
    return ((Probe.Unavailable) probe).reason();
  }

  @Test
  void isFoundAndHonest() {
    DriverProvider provider =
        ServiceLoader.load(DriverProvider.class).stream()
            .map(ServiceLoader.Provider::get)
            .filter(p -> p.name().equals("cuda"))
            .findFirst()
            .orElseThrow();
    switch (provider.probe()) {
      case Probe.Available(String version, int devices) -> {
        assertThat(version).contains(".");
        assertThat(devices).isPositive();
      }
      case Probe.Unavailable(String why) -> assertThat(why).isNotBlank();
    }
  }

  @Test
  void saysThatThereIsNoDriver() {
    assertThat(reason(new CudaDriverProvider("libno-such-driver.so.1")))
        .contains("libno-such-driver.so.1 cannot be loaded", "install", "host device");
  }

  @Test
  @EnabledOnOs(OS.LINUX)
  void isNotTakenInByAnotherLibrary() {
    assertThat(reason(new CudaDriverProvider("libc.so.6"))).contains("is no CUDA driver");
  }

  @Test
  @EnabledOnOs(OS.LINUX)
  void saysWhichFunctionsADriverLacks(@TempDir Path folder)
      throws IOException, InterruptedException {
    Path library = folder.resolve("libfake.so");
    if (!compile("int cuDriverGetVersion(int *v) { *v = 10010; return 0; }", library)) {
      System.out.println("!! NO C COMPILER (gcc): the test with an old driver was NOT run");
      org.junit.jupiter.api.Assumptions.abort("no gcc");
    }
    assertThat(reason(new CudaDriverProvider(library.toString())))
        .contains("CUDA 10.1", "it has no cuInit, ", " more functions");
  }

  @Test
  void refusesToOpenWithTheSameReason() {
    DriverProvider provider = new CudaDriverProvider("libno-such-driver.so.1");
    assertThatThrownBy(() -> provider.open(Map.of()))
        .isInstanceOfSatisfying(
            DriverException.class,
            e -> assertThat(e.status()).isEqualTo(DriverException.NOT_SUPPORTED))
        .hasMessageContaining(reason(provider));
  }

  @Test
  void refusesSettingsThatItDoesNotKnow() {
    DriverProvider provider = new CudaDriverProvider("libno-such-driver.so.1");
    assertThatThrownBy(() -> provider.open(Map.of("workers", "2")))
        .isInstanceOfSatisfying(
            DriverException.class,
            e -> assertThat(e.status()).isEqualTo(DriverException.INVALID_VALUE))
        .hasMessageContaining("'workers'");
    assertThatThrownBy(() -> provider.open(Map.of("signals", "smoke")))
        .isInstanceOf(DriverException.class)
        .hasMessageContaining("smoke");
  }

  @Test
  @EnabledOnOs(OS.LINUX)
  void findsTheDriverThatASettingNames() {
    StandInLibrary standIn = StandInLibrary.get();
    standIn.reset();
    try (Driver driver =
        new CudaDriverProvider().open(Map.of("library", standIn.path().toString()))) {
      assertThat(driver.name()).isEqualTo("cuda");
      assertThat(driver.version()).isEqualTo("13.0");
      assertThat(driver.deviceCount()).isEqualTo(2);
    }
    assertThat(new CudaDriverProvider(standIn.path().toString()).probe())
        .isEqualTo(new Probe.Available("13.0", 2));
  }

  @Test
  @EnabledOnOs(OS.LINUX)
  void saysWhatTheDriverSaysWhereThereIsNoDevice() {
    StandInLibrary standIn = StandInLibrary.get();
    standIn.reset();
    standIn.devices(0);
    CudaDriverProvider provider = new CudaDriverProvider(standIn.path().toString());
    assertThat(reason(provider)).contains("no CUDA-capable device", "13.0");
    assertThatThrownBy(() -> provider.open(Map.of()))
        .isInstanceOfSatisfying(
            DriverException.class,
            e -> {
              assertThat(e.status()).isEqualTo(100);
              assertThat(e.statusName()).isEqualTo("CUDA_ERROR_NO_DEVICE");
            });
    standIn.reset();
  }

  /** In a process of its own: native access is allowed or denied for all of one. */
  @Test
  void saysHowToAllowNativeAccess() throws IOException, InterruptedException {
    Process java =
        new ProcessBuilder(
                List.of(
                    Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                    "--illegal-native-access=deny",
                    "-cp",
                    System.getProperty("java.class.path"),
                    ProbeOnly.class.getName()))
            .redirectErrorStream(true)
            .start();
    String output = new String(java.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    assertThat(java.waitFor()).as(output).isZero();
    assertThat(output).contains("--enable-native-access=io.fairlead.ffi");
  }

  /** Says on standard output what the provider found. */
  static final class ProbeOnly {
    private ProbeOnly() {}

    public static void main(String[] arguments) {
      System.out.println(reason(new CudaDriverProvider()));
    }
  }

  private static boolean compile(String code, Path library)
      throws IOException, InterruptedException {
    Path source = library.resolveSibling("fake.c");
    Files.writeString(source, code);
    String told = System.getenv("FAIRLEAD_CC");
    String compiler = told == null || told.isBlank() ? "gcc" : told;
    try {
      Process gcc =
          new ProcessBuilder(
                  compiler, "-shared", "-fPIC", "-o", library.toString(), source.toString())
              .inheritIO()
              .start();
      return gcc.waitFor() == 0;
    } catch (IOException e) {
      return false;
    }
  }
}
