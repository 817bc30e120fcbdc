package io.fairlead.device;

import io.fairlead.fault.Severity;

/**
 * The context is lost: work on it failed fatally, and nothing of it can be used any more. Every
 * waiter and every later caller gets one of these, and its cause is the same for all: the first
 * fault, with the launch sites that were in flight.
 */
public final class DeviceLostException extends DeviceException {
  private static final long serialVersionUID = 1L;

  DeviceLostException(Site site, DeviceException first) {
    super(
        Severity.CONTEXT,
        site,
        first.launchSites(),
        site + ": the context is lost. First fault: " + first.getMessage(),
        new Cause(first.status(), first.statusName(), first));
  }
}
