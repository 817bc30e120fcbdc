package io.fairlead.runtime;

import io.fairlead.memory.Device;
import io.fairlead.memory.Reservation;
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
    if (bytes == 0) {
      return Completion.completed(DeviceEngines::nothing);
    }
    Completion<Reservation> request = device.requestReservation(bytes);
    Completion.Source<AutoCloseable> admitted = Completion.source();
    // Not thenApply: a call that gives up must take its request back, or it is granted to nobody.
    admitted.onCancel(request::cancel);
    request.onDone(done -> pass(done, admitted));
    return admitted.completion();
  }

  private static void pass(
      Completion<Reservation> done, Completion.Source<AutoCloseable> admitted) {
    Throwable cause = done.cause();
    if (cause != null) {
      admitted.fail(cause);
    } else if (!admitted.complete(done.getNow())) {
      done.getNow().close();
    }
  }

  /** Gives back no bytes. */
  private static void nothing() {}
}
