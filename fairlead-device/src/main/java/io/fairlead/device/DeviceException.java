package io.fairlead.device;

import io.fairlead.fault.FairleadException;
import io.fairlead.fault.Severity;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** The driver refused an operation, or work on the device failed. */
public class DeviceException extends FairleadException {
  private static final long serialVersionUID = 1L;

  private final int status;
  private final String statusName;
  private final String operation;
  private final int device;
  private final long stream;
  private final List<String> launchSites;

  DeviceException(
      Severity severity, Site site, List<String> launchSites, String message, Cause cause) {
    super(severity, message, cause.exception);
    this.status = cause.status;
    this.statusName = cause.statusName;
    this.operation = site.operation;
    this.device = site.device;
    this.stream = site.stream;
    this.launchSites = List.copyOf(launchSites);
  }

  /** The driver's number; 0 if the driver was not asked. */
  public int status() {
    return status;
  }

  /** The driver's name of {@link #status()}. */
  public String statusName() {
    return statusName;
  }

  /** What was being done: {@code launch axpy}, {@code allocate}. */
  public String operation() {
    return operation;
  }

  /** Ordinal of the device. */
  public int device() {
    return device;
  }

  /** {@link DeviceStream#id()} of the stream, or 0 if none was concerned. */
  public long stream() {
    return stream;
  }

  /**
   * For a lost context, the operations that were enqueued and not known to have ended, oldest first
   * for each stream: the failed one is among them. Empty otherwise.
   */
  public List<String> launchSites() {
    return launchSites;
  }

  /** Where it happened. */
  record Site(String operation, int device, long stream) {
    @Override
    public String toString() {
      String place = operation + " on device " + device;
      return stream == 0 ? place : place + ", stream " + stream;
    }
  }

  /** What the driver, or whoever failed, said. */
  record Cause(int status, String statusName, @Nullable Throwable exception) {
    static final Cause NONE = new Cause(0, "NONE", null);
  }
}
