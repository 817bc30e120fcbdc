package io.fairlead.host;

import io.fairlead.device.spi.DriverException;
import org.jspecify.annotations.Nullable;

/** The statuses of this driver: CUDA's numbers and names, without the prefix. */
final class Status {
  private Status() {}

  static String name(int status) {
    return switch (status) {
      case DriverException.INVALID_VALUE -> "INVALID_VALUE";
      case DriverException.OUT_OF_MEMORY -> "OUT_OF_MEMORY";
      case DriverException.NOT_INITIALIZED -> "NOT_INITIALIZED";
      case DriverException.INVALID_DEVICE -> "INVALID_DEVICE";
      case DriverException.INVALID_IMAGE -> "INVALID_IMAGE";
      case DriverException.INVALID_CONTEXT -> "INVALID_CONTEXT";
      case DriverException.INVALID_HANDLE -> "INVALID_HANDLE";
      case DriverException.ILLEGAL_STATE -> "ILLEGAL_STATE";
      case DriverException.NOT_FOUND -> "NOT_FOUND";
      case DriverException.ILLEGAL_ADDRESS -> "ILLEGAL_ADDRESS";
      case DriverException.LAUNCH_FAILED -> "LAUNCH_FAILED";
      case DriverException.NOT_SUPPORTED -> "NOT_SUPPORTED";
      case DriverException.CAPTURE_UNSUPPORTED -> "CAPTURE_UNSUPPORTED";
      default -> "STATUS_" + status;
    };
  }

  /** The call is refused; nothing else changes. */
  static DriverException refused(int status, String message) {
    return new DriverException(status, name(status), false, message, null);
  }

  static DriverException invalidValue(String message) {
    return refused(DriverException.INVALID_VALUE, message);
  }

  /** The context is lost. */
  static DriverException fatal(int status, String message, @Nullable Throwable cause) {
    return new DriverException(status, name(status), true, message, cause);
  }

  /**
   * What a later call of a lost context throws: a fresh exception, since a shared one would collect
   * the suppressed exceptions of everybody and cannot suppress itself.
   */
  static DriverException again(DriverException first) {
    return new DriverException(
        first.status(),
        first.statusName(),
        true,
        "the context is lost: " + first.getMessage(),
        first);
  }

  static String hex(long value) {
    return "0x" + Long.toHexString(value);
  }
}
