package io.fairlead.device.spi;

import org.jspecify.annotations.Nullable;

/**
 * A driver's refusal, with its own number and name. The device layer turns it into a {@code
 * DeviceException} with operation, device and stream; users never see this type.
 */
public final class DriverException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  public static final int INVALID_VALUE = 1;
  public static final int OUT_OF_MEMORY = 2;
  public static final int NOT_INITIALIZED = 3;
  public static final int INVALID_DEVICE = 101;
  public static final int INVALID_IMAGE = 200;
  public static final int INVALID_CONTEXT = 201;
  public static final int NO_BINARY_FOR_DEVICE = 209;
  public static final int JIT_COMPILER_NOT_FOUND = 221;
  public static final int UNSUPPORTED_PTX_VERSION = 222;
  public static final int JIT_COMPILATION_DISABLED = 223;
  public static final int INVALID_HANDLE = 400;
  public static final int ILLEGAL_STATE = 401;
  public static final int NOT_FOUND = 500;
  public static final int ILLEGAL_ADDRESS = 700;
  public static final int LAUNCH_FAILED = 719;
  public static final int COOPERATIVE_LAUNCH_TOO_LARGE = 720;
  public static final int NOT_SUPPORTED = 801;
  public static final int CAPTURE_UNSUPPORTED = 900;
  public static final int CAPTURE_INVALIDATED = 901;

  private final int status;
  private final String statusName;
  private final boolean fatal;

  /**
   * @param status the driver's number; where CUDA has one for the case, that one
   * @param statusName the driver's name of it
   * @param fatal whether the context is lost
   */
  public DriverException(
      int status, String statusName, boolean fatal, String message, @Nullable Throwable cause) {
    super(message, cause);
    this.status = status;
    this.statusName = statusName;
    this.fatal = fatal;
  }

  public int status() {
    return status;
  }

  public String statusName() {
    return statusName;
  }

  public boolean isFatal() {
    return fatal;
  }

  public boolean isOutOfMemory() {
    return status == OUT_OF_MEMORY;
  }

  /**
   * Whether an image was refused because this device or driver does not run such a one, so that the
   * same code in another form may do.
   */
  public boolean isNotForThisDevice() {
    return switch (status) {
      case NO_BINARY_FOR_DEVICE,
          JIT_COMPILER_NOT_FOUND,
          UNSUPPORTED_PTX_VERSION,
          JIT_COMPILATION_DISABLED ->
          true;
      default -> false;
    };
  }

  /** For what a driver has not; {@code message} says what to do instead. */
  static DriverException notSupported(String message) {
    return new DriverException(NOT_SUPPORTED, "NOT_SUPPORTED", false, message, null);
  }

  /** The same, of one of several pieces that were to be copied together; the first has number 0. */
  public DriverException ofPiece(int piece, int pieces) {
    String message = "piece " + piece + " of " + pieces + ": " + getMessage();
    return new DriverException(status, statusName, fatal, message, this);
  }
}
