package io.fairlead.runtime;

import io.fairlead.comm.Launch;
import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverException;
import io.fairlead.device.spi.DriverProvider;
import io.fairlead.device.spi.DriverProvider.Probe;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.ServiceLoader;
import org.jspecify.annotations.Nullable;

/**
 * Which driver was taken, and why. {@code auto} takes the provider with the highest preference that
 * can be opened; what it passed over is part of {@link #reason}, and is a warning if it fell to a
 * less preferred one. A name takes that provider or fails: nothing falls back quietly.
 */
record DriverChoice(Driver driver, String reason) {
  private static final System.Logger LOGGER = System.getLogger("io.fairlead.runtime");
  private static final String HOST = "host";

  /** Whether its devices are this process's own: every rank has as many, and shares none. */
  boolean isHost() {
    return driver.name().equals(HOST);
  }

  /**
   * Opens the driver that the configuration asks for. Blocking; not on a virtual thread.
   *
   * @param loader where providers are looked for: the user's, not that of the thread that opens
   */
  static DriverChoice open(FairleadConfig config, @Nullable ClassLoader loader) {
    List<DriverProvider> providers =
        ServiceLoader.load(DriverProvider.class, loader).stream()
            .map(ServiceLoader.Provider::get)
            .toList();
    return open(config, providers);
  }

  /** What the drivers say of themselves, the one that auto prefers first. */
  static List<DriverReport> reports() {
    List<DriverProvider> providers =
        ServiceLoader.load(DriverProvider.class).stream().map(ServiceLoader.Provider::get).toList();
    return byPreference(providers).stream().map(DriverChoice::report).toList();
  }

  private static DriverReport report(DriverProvider provider) {
    return switch (provider.probe()) {
      case Probe.Available(String version, int devices) ->
          new DriverReport(provider.name(), true, devices, version);
      case Probe.Unavailable(String why) -> new DriverReport(provider.name(), false, 0, why);
    };
  }

  static DriverChoice open(FairleadConfig config, List<DriverProvider> providers) {
    return config.device().equals(FairleadConfig.AUTO)
        ? best(config, providers)
        : named(config, providers);
  }

  private static DriverChoice named(FairleadConfig config, List<DriverProvider> providers) {
    String name = config.device();
    for (DriverProvider provider : providers) {
      if (provider.name().equals(name)) {
        if (provider.probe() instanceof Probe.Unavailable(String why)) {
          throw new DriverUnavailableException(
              "device '" + name + "' was asked for and is not available: " + why, null);
        }
        try {
          return new DriverChoice(open(provider, config), "asked for by name");
        } catch (DriverException refused) {
          throw new DriverUnavailableException(
              "device '" + name + "' was asked for and did not open: " + refused.getMessage(),
              refused);
        }
      }
    }
    throw new DriverUnavailableException(
        "there is no driver named '" + name + "'; " + found(providers), null);
  }

  private static DriverChoice best(FairleadConfig config, List<DriverProvider> providers) {
    List<String> passed = new ArrayList<>();
    for (DriverProvider provider : byPreference(providers)) {
      if (provider.probe() instanceof Probe.Unavailable(String why)) {
        passed.add(provider.name() + ": " + why);
        continue;
      }
      try {
        return taken(open(provider, config), passed);
      } catch (DriverException refused) {
        passed.add(provider.name() + " did not open: " + refused.getMessage());
      }
    }
    String tried = passed.isEmpty() ? "" : " Tried " + String.join("; ", passed) + ".";
    throw new DriverUnavailableException(
        "no device can be used; " + found(providers) + tried, null);
  }

  private static DriverChoice taken(Driver driver, List<String> passed) {
    if (passed.isEmpty()) {
      return new DriverChoice(driver, "auto: the best driver here");
    }
    String reason = "auto: passed over " + String.join("; ", passed);
    // Ranks of one host find the same there, and one of them says it.
    boolean says = Launch.current().map(Launch::localRank).orElse(0) == 0;
    LOGGER.log(
        says ? System.Logger.Level.WARNING : System.Logger.Level.DEBUG,
        () ->
            "using device '"
                + driver.name()
                + "' ("
                + reason
                + "). Set "
                + FairleadConfig.DEVICE_PROPERTY
                + "="
                + driver.name()
                + " to say that this is meant");
    return new DriverChoice(driver, reason);
  }

  private static List<DriverProvider> byPreference(List<DriverProvider> providers) {
    return providers.stream()
        .sorted(Comparator.comparingInt(DriverProvider::preference).reversed())
        .toList();
  }

  private static Driver open(DriverProvider provider, FairleadConfig config) {
    Map<String, String> settings =
        provider.name().equals(HOST) ? config.hostSettings() : config.driverSettings();
    return provider.open(settings);
  }

  private static String found(List<DriverProvider> providers) {
    if (providers.isEmpty()) {
      return "no driver is on the path: add io.fairlead.host for the embedded device, or"
          + " io.fairlead.ffi for CUDA";
    }
    return "found " + String.join(", ", providers.stream().map(DriverProvider::name).toList());
  }
}
