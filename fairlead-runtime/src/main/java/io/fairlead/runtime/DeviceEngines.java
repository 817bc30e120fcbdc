package io.fairlead.runtime;

import io.fairlead.memory.Device;
import io.fairlead.task.Completion;
import io.fairlead.task.EngineLimits;

/** What ties a user's engine to a device, where its limits leave that open. */
final class DeviceEngines {
  private DeviceEngines() {}

  /** Memory is admitted by the device; an instance is free when its task's stream is through. */
  static EngineLimits withDefaults(EngineLimits limits, Device device) {
    EngineLimits result = limits;
    if (result.admission() == null) {
      result = result.admission(bytes -> admit(device, bytes));
    }
    if (result.releaseGate() == null) {
      result = result.releaseGate(task -> device.stream().reached());
    }
    return result;
  }

  private static Completion<AutoCloseable> admit(Device device, long bytes) {
    return bytes == 0
        ? Completion.completed(DeviceEngines::nothing)
        : device.requestReservation(bytes).thenApply(reservation -> reservation);
  }

  /** Gives back no bytes. */
  private static void nothing() {}
}
