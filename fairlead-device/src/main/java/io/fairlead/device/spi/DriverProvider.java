package io.fairlead.device.spi;

import java.util.Map;

/**
 * Finds one kind of driver. Implementations are listed with {@link java.util.ServiceLoader}.
 *
 * <p>Threads: any. Neither method may leave a context current on the calling thread.
 */
public interface DriverProvider {

  /** The name a user selects it by: {@code host}, {@code cuda}. */
  String name();

  /** {@code auto} takes the available provider with the highest preference. */
  int preference();

  /** Whether this driver can be opened here. Cheap, without side effects, never throws. */
  Probe probe();

  /**
   * Opens the driver. Blocking; call it from a platform thread or an owner.
   *
   * @param settings provider-specific settings; unknown keys are refused with their name
   * @throws DriverException if the driver cannot be opened
   */
  Driver open(Map<String, String> settings);

  /** The answer of {@link #probe()}. */
  sealed interface Probe {
    /** The driver is there. */
    record Available(String version, int devices) implements Probe {}

    /** The driver cannot be used; {@code reason} says why and what to do, in one sentence. */
    record Unavailable(String reason) implements Probe {}
  }
}
