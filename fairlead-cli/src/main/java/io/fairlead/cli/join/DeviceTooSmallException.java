package io.fairlead.cli.join;

import io.fairlead.cli.Bytes;
import io.fairlead.fault.FairleadException;
import io.fairlead.fault.Severity;
import java.util.Locale;
import org.jspecify.annotations.Nullable;

/** The join, or one step of it, needs more memory than there is: spilling cannot help. */
final class DeviceTooSmallException extends FairleadException {
  private static final long serialVersionUID = 1L;
  private static final long KIBI = 1024;

  /** More was asked for than there is. */
  DeviceTooSmallException(String message, @Nullable Throwable cause) {
    super(Severity.OPERATION, message, cause);
  }

  /** A launch that needs so much at once. */
  DeviceTooSmallException(String what, long needed, long limit, int partitions) {
    super(
        Severity.OPERATION,
        String.format(
            Locale.ROOT,
            "%s needs %s of device memory at once, and there are %s. Give it at least"
                + " --device-memory %dK, or more --partitions than %d.",
            what,
            Bytes.text(needed),
            Bytes.text(limit),
            Math.ceilDiv(needed, KIBI),
            partitions),
        null);
  }

  /** The host has no room for what has to leave the device. */
  static DeviceTooSmallException below(long buffer, long needed, long limit, int partitions) {
    String message =
        String.format(
            Locale.ROOT,
            "buffers of %s have to leave the device, by way of %s of host memory. Give it at least"
                + " --host-memory %dK, or more --partitions than %d.",
            Bytes.text(buffer),
            Bytes.text(limit),
            Math.ceilDiv(needed, KIBI),
            partitions);
    return new DeviceTooSmallException(message, null);
  }

  /** There is no room for the tables alone, wherever they go. */
  static DeviceTooSmallException everywhere(long leaves, long limit) {
    String message =
        String.format(
            Locale.ROOT,
            "%s of the tables have to leave the device, and there are %s of host memory for them. Give"
                + " it more --host-memory, more --device-memory, or a --spill-dir.",
            Bytes.text(leaves),
            Bytes.text(limit));
    return new DeviceTooSmallException(message, null);
  }
}
