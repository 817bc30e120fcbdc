package io.fairlead.ffi;

import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverException;
import io.fairlead.device.spi.DriverProvider;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.util.Map;
import java.util.Optional;

/**
 * Looks for an NVIDIA driver and says what it finds. This version does not drive CUDA: {@link
 * #probe} is always {@link Probe.Unavailable}, either because there is no driver library, or
 * because there is one that nothing here uses yet.
 *
 * <p>Threads: any. Looking loads the library and lets it go again; it is not initialised.
 */
public final class CudaDriverProvider implements DriverProvider {
  private static final String LIBRARY = "libcuda.so.1";

  /** First, and whatever is found: nobody is to install a driver for nothing. */
  private static final String NOT_YET =
      "this version of Fairlead has no CUDA yet; use the host device";

  private final String library;

  /** Used by {@link java.util.ServiceLoader}; any thread. */
  public CudaDriverProvider() {
    this(LIBRARY);
  }

  CudaDriverProvider(String library) {
    this.library = library;
  }

  @Override
  public String name() {
    return "cuda";
  }

  /** Above the host device's 0: where CUDA can be driven, it is wanted. */
  @Override
  public int preference() {
    return 100;
  }

  @Override
  public Probe probe() {
    return new Probe.Unavailable(reason());
  }

  private String reason() {
    try (Arena arena = Arena.ofConfined()) {
      SymbolLookup driver = SymbolLookup.libraryLookup(library, arena);
      Optional<MemorySegment> version = driver.find("cuDriverGetVersion");
      return version.isEmpty()
          ? NOT_YET + " (" + library + " is there, and is no CUDA driver: no cuDriverGetVersion)"
          : NOT_YET + " (a driver is there, CUDA " + version(version.get(), arena) + ")";
    } catch (IllegalArgumentException e) {
      return NOT_YET + " (nor is there a driver: " + library + " cannot be loaded)";
    } catch (IllegalCallerException e) {
      return "native access is denied; start Java with --enable-native-access=io.fairlead.ffi (or"
          + " ALL-UNNAMED on the class path), or use the host device";
    }
  }

  /** The one function that works before cuInit. */
  private static String version(MemorySegment function, Arena arena) {
    FunctionDescriptor type = FunctionDescriptor.of(ValueLayout.JAVA_INT, ValueLayout.ADDRESS);
    MemorySegment answer = arena.allocate(ValueLayout.JAVA_INT);
    try {
      int status = (int) Linker.nativeLinker().downcallHandle(function, type).invokeExact(answer);
      int number = answer.get(ValueLayout.JAVA_INT, 0);
      return status == 0
          ? number / 1000 + "." + number % 1000 / 10
          : "version unknown, cuDriverGetVersion answers " + status;
    } catch (RuntimeException | Error e) {
      throw e;
    } catch (Throwable e) {
      throw new AssertionError("cuDriverGetVersion threw, which no native function can", e);
    }
  }

  /**
   * Refuses.
   *
   * @throws DriverException NOT_SUPPORTED, with the reason that {@link #probe} gives
   */
  @Override
  public Driver open(Map<String, String> settings) {
    throw new DriverException(
        DriverException.NOT_SUPPORTED, "NOT_SUPPORTED", false, "cuda: " + reason(), null);
  }
}
