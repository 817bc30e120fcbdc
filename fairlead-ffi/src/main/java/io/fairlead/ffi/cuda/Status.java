package io.fairlead.ffi.cuda;

import io.fairlead.device.spi.DriverException;

/**
 * CUDA's statuses: which of them end a context, and the exceptions made of them. A refusal that
 * Fairlead itself makes, before the driver is asked, has the number and name that CUDA has for it.
 */
final class Status {
  static final int SUCCESS = 0;
  static final int DEINITIALIZED = 4;
  static final int NOT_READY = 600;
  static final int CONTEXT_IS_DESTROYED = 709;

  /** Of a capture that is under way elsewhere, and that a call would have become a part of. */
  static final int IMPLICIT = 906;

  static final int UNKNOWN = 999;

  private Status() {}

  /**
   * Whether a context that answered this is lost: every later call of it answers the same, as
   * cuda.h says of each of these.
   */
  static boolean isFatal(int status) {
    return switch (status) {
      case DEINITIALIZED,
          214, // ECC_UNCORRECTABLE
          220, // NVLINK_UNCORRECTABLE
          226, // CONTAINED
          DriverException.ILLEGAL_ADDRESS,
          702, // LAUNCH_TIMEOUT
          CONTEXT_IS_DESTROYED,
          710, // ASSERT
          714, // HARDWARE_STACK_ERROR
          715, // ILLEGAL_INSTRUCTION
          716, // MISALIGNED_ADDRESS
          717, // INVALID_ADDRESS_SPACE
          718, // INVALID_PC
          DriverException.LAUNCH_FAILED,
          721, // TENSOR_MEMORY_LEAK
          810 // MPS_CLIENT_TERMINATED
          ->
          true;
      default -> false;
    };
  }

  /** What the driver says of its status: name and description. */
  static String describe(CudaApi api, int status) {
    return name(api, status) + " (" + status + "): " + text(api, status);
  }

  static String name(CudaApi api, int status) {
    Scratch scratch = Scratch.take();
    try {
      return api.getErrorName(status, scratch.answer()) == SUCCESS
          ? Memory.string(scratch.longAnswer())
          : "CUDA_ERROR_" + status;
    } finally {
      scratch.giveBack();
    }
  }

  private static String text(CudaApi api, int status) {
    Scratch scratch = Scratch.take();
    try {
      return api.getErrorString(status, scratch.answer()) == SUCCESS
          ? Memory.string(scratch.longAnswer())
          : "the driver has no text for it";
    } finally {
      scratch.giveBack();
    }
  }

  /** The driver refused a call; nothing else changed. */
  static DriverException of(CudaApi api, int status, String call) {
    return of(api, status, call, "");
  }

  /** As the other {@code of}, with more to say. */
  static DriverException of(CudaApi api, int status, String call, String more) {
    return new DriverException(
        status,
        name(api, status),
        isFatal(status),
        call + ": " + text(api, status) + (more.isEmpty() ? "" : ". " + more),
        null);
  }

  /** Fairlead refuses, as the driver would. */
  static DriverException refused(int status, String message) {
    return new DriverException(status, ownName(status), false, message, null);
  }

  static DriverException invalidValue(String message) {
    return refused(DriverException.INVALID_VALUE, message);
  }

  static DriverException fatal(int status, String message) {
    return new DriverException(status, ownName(status), true, message, null);
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

  /** The names of those that Fairlead itself gives, by a driver or without one. */
  private static String ownName(int status) {
    return switch (status) {
      case DriverException.INVALID_VALUE -> "CUDA_ERROR_INVALID_VALUE";
      case DriverException.OUT_OF_MEMORY -> "CUDA_ERROR_OUT_OF_MEMORY";
      case DriverException.NOT_INITIALIZED -> "CUDA_ERROR_NOT_INITIALIZED";
      case DriverException.INVALID_DEVICE -> "CUDA_ERROR_INVALID_DEVICE";
      case DriverException.INVALID_IMAGE -> "CUDA_ERROR_INVALID_IMAGE";
      case DriverException.INVALID_CONTEXT -> "CUDA_ERROR_INVALID_CONTEXT";
      case DriverException.NO_BINARY_FOR_DEVICE -> "CUDA_ERROR_NO_BINARY_FOR_GPU";
      case DriverException.INVALID_HANDLE -> "CUDA_ERROR_INVALID_HANDLE";
      case DriverException.ILLEGAL_STATE -> "CUDA_ERROR_ILLEGAL_STATE";
      case DriverException.NOT_FOUND -> "CUDA_ERROR_NOT_FOUND";
      case DriverException.NOT_SUPPORTED -> "CUDA_ERROR_NOT_SUPPORTED";
      case DriverException.CAPTURE_UNSUPPORTED -> "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED";
      case DriverException.CAPTURE_INVALIDATED -> "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED";
      default -> "CUDA_ERROR_" + status;
    };
  }

  static String hex(long value) {
    return "0x" + Long.toHexString(value);
  }
}
