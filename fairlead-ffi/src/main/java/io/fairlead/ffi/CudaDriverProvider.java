package io.fairlead.ffi;

import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverException;
import io.fairlead.device.spi.DriverProvider;
import io.fairlead.ffi.cuda.CudaApi;
import io.fairlead.ffi.cuda.CudaDriver;
import io.fairlead.ffi.cuda.CudaSettings;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * Finds NVIDIA's driver and drives it.
 *
 * <p>Settings, all optional:
 *
 * <table>
 * <caption>Settings of the cuda driver</caption>
 * <tr><th>key</th><th>value</th><th>otherwise</th></tr>
 * <tr><td>{@code library}</td><td>the driver's library, a name or a path</td>
 *     <td>the system property {@code fairlead.cuda.library}, else libcuda.so.1, libcuda.so</td></tr>
 * <tr><td>{@code nvrtc}</td><td>the library of NVIDIA's run-time compiler</td>
 *     <td>the system property {@code fairlead.cuda.nvrtc}, else libnvrtc.so of CUDA 13, 12, 11.2</td>
 *     </tr>
 * <tr><td>{@code signals}</td><td>{@code write}: streams write 64-bit values; {@code fill}: they
 *     fill 32 bits</td><td>{@code write} where all devices can</td></tr>
 * <tr><td>{@code tickets}</td><td>how many streams may have such a value outstanding at once; the
 *     signals of more are events</td>
 *     <td>the system property {@code fairlead.cuda.tickets}, else half of the hardware queues</td></tr>
 * <tr><td>{@code nvtx}</td><td>the library of a profiler that listens to NVTX</td><td>what the
 *     profiler says in NVTX_INJECTION64_PATH</td></tr>
 * <tr><td>{@code code}</td><td>the only form in which modules are loaded: {@code binary}, {@code
 *     source}, {@code ptx}; or {@code any}</td>
 *     <td>the system property {@code fairlead.cuda.code}, else {@code any}: of each module the
 *     first form that fits the device</td></tr>
 * </table>
 *
 * <p>Before the driver is loaded, {@code CUDA_DEVICE_MAX_CONNECTIONS} is set to 32 in the process's
 * environment, unless it is set already: with the driver's own choice of 8, other streams' work
 * sticks behind the signals of seven streams with long kernels.
 *
 * <p>Threads: any. A library that was loaded stays loaded. {@link #probe} initialises the driver,
 * since only then it says how many devices there are; no context is made.
 */
public final class CudaDriverProvider implements DriverProvider {
  private static final String[] USUAL = {"libcuda.so.1", "libcuda.so"};

  private final @Nullable String library;

  /** Used by {@link java.util.ServiceLoader}; any thread. */
  public CudaDriverProvider() {
    this.library = null;
  }

  /** For a library that is not to be looked for. */
  CudaDriverProvider(String library) {
    this.library = library;
  }

  @Override
  public String name() {
    return CudaDriver.NAME;
  }

  /** Above the host device's 0: where CUDA can be driven, it is wanted. */
  @Override
  public int preference() {
    return 100;
  }

  @Override
  public Probe probe() {
    try {
      CudaApi api = load(CudaSettings.of(Map.of()));
      int devices = CudaDriver.devices(api);
      return devices > 0
          ? new Probe.Available(api.version(), devices)
          : new Probe.Unavailable(
              "the driver (CUDA "
                  + api.version()
                  + ") has no device; look at CUDA_VISIBLE_DEVICES");
    } catch (DriverException e) {
      return new Probe.Unavailable(String.valueOf(e.getMessage()));
    }
  }

  /**
   * Opens the driver. Blocking.
   *
   * @throws DriverException NOT_SUPPORTED, with the reason that {@link #probe} gives, or what the
   *     driver itself says
   */
  @Override
  public Driver open(Map<String, String> settings) {
    CudaSettings chosen = CudaSettings.of(settings);
    return CudaDriver.open(load(chosen), chosen);
  }

  /** What native access is denied to shows as a class that cannot be initialised. */
  private CudaApi load(CudaSettings settings) {
    try {
      return find(settings);
    } catch (ExceptionInInitializerError | NoClassDefFoundError e) {
      throw new DriverException(
          DriverException.NOT_SUPPORTED,
          "CUDA_ERROR_NOT_SUPPORTED",
          false,
          "native access is denied or not there; start Java with"
              + " --enable-native-access=io.fairlead.ffi (or ALL-UNNAMED on the class path), or use"
              + " the host device",
          e);
    }
  }

  private CudaApi find(CudaSettings settings) {
    String named = library != null ? library : settings.library();
    if (named != null) {
      return CudaApi.load(named);
    }
    DriverException first = null;
    for (String name : USUAL) {
      try {
        return CudaApi.load(name);
      } catch (DriverException e) {
        first = first == null ? e : first; // the usual name's reason says it best
      }
    }
    throw java.util.Objects.requireNonNull(first);
  }
}
