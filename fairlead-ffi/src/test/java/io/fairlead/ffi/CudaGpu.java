package io.fairlead.ffi;

import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverProvider.Probe;
import java.util.Map;

/** The GPU of this machine, for tests that are skipped where there is none. */
final class CudaGpu {
  /**
   * Tests that lose a context: a process that did so may not get another one. So they are run only
   * if asked for, each class in a process of its own.
   */
  private static final String FAULTS = "fairlead.gpu.faults";

  private static final String CHECKED = "fairlead.gpu.checked";

  private CudaGpu() {}

  /** Skips the calling test, aloud, if there is no GPU. */
  static Driver open() {
    CudaDriverProvider provider = new CudaDriverProvider();
    if (provider.probe() instanceof Probe.Unavailable(String why)) {
      System.out.println("!! NO GPU (" + why + "): the tests on a GPU were NOT run");
      assumeTrue(false, why);
    }
    return provider.open(Map.of());
  }

  /** Whether the process runs under compute-sanitizer; {@code ./gpu-verify memcheck} says so. */
  static boolean isChecked() {
    return Boolean.getBoolean(CHECKED);
  }

  /** Skips the calling test, aloud, beside a checker that waits where the driver does not. */
  static void requireUnchecked(String what) {
    if (isChecked()) {
      System.out.println("!! NOT RUN under compute-sanitizer: " + what);
      assumeTrue(false, what);
    }
  }

  static boolean mayFault() {
    boolean asked = Boolean.getBoolean(FAULTS);
    if (!asked) {
      System.out.println("!! faults on the GPU were NOT tried (-D" + FAULTS + "=true does)");
    }
    return asked;
  }
}
