package io.fairlead.ffi;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.spi.DriverException;
import io.fairlead.device.spi.DriverProvider;
import io.fairlead.device.spi.DriverProvider.Probe;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
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
    // With a driver or without: this version cannot drive it, and says so first.
    assertThat(reason(provider)).startsWith("this version of Fairlead has no CUDA yet");
  }

  @Test
  void saysThatThereIsNoDriver() {
    assertThat(reason(new CudaDriverProvider("libno-such-driver.so.1")))
        .contains("libno-such-driver.so.1 cannot be loaded")
        .contains("has no CUDA yet", "host device")
        .doesNotContain("install");
  }

  @Test
  @EnabledOnOs(OS.LINUX)
  void isNotTakenInByAnotherLibrary() {
    assertThat(reason(new CudaDriverProvider("libc.so.6"))).contains("no CUDA driver");
  }

  @Test
  @EnabledOnOs(OS.LINUX)
  void saysWhichDriverItDoesNotDrive(@TempDir Path folder)
      throws IOException, InterruptedException {
    Path library = folder.resolve("libfake.so");
    if (!compile("int cuDriverGetVersion(int *v) { *v = 13020; return 0; }", library)) {
      System.out.println("!! NO C COMPILER (gcc): the test with a stand-in driver was NOT run");
      org.junit.jupiter.api.Assumptions.abort("no gcc");
    }
    assertThat(reason(new CudaDriverProvider(library.toString())))
        .contains("CUDA 13.2")
        .contains("has no CUDA yet");
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
