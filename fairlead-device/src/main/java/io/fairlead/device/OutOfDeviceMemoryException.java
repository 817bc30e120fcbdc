package io.fairlead.device;

import io.fairlead.device.spi.DriverException;
import io.fairlead.fault.Severity;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** The device has no room for an allocation. Nothing was allocated, and the context is sound. */
public final class OutOfDeviceMemoryException extends DeviceException {
  private static final long serialVersionUID = 1L;

  /**
   * @param message what was asked for, what the limit is, who holds it, and what to do
   * @param operation what was being done
   * @param device ordinal of the device
   * @param cause the driver's refusal, if it was asked
   */
  public OutOfDeviceMemoryException(
      String message, String operation, int device, @Nullable Throwable cause) {
    this(new Site(operation, device, 0), message, cause);
  }

  OutOfDeviceMemoryException(Site site, String message, @Nullable Throwable cause) {
    super(
        Severity.OPERATION,
        site,
        List.of(),
        message,
        new Cause(DriverException.OUT_OF_MEMORY, "OUT_OF_MEMORY", cause));
  }
}
