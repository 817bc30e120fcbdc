package io.fairlead.host;

import io.fairlead.device.spi.DriverException;

/** Turns what an operation threw into the fault of its context. */
final class Fault {
  private Fault() {}

  static DriverException of(Throwable thrown, HostStream stream, Operation operation) {
    if (thrown instanceof DriverException fault && fault.isFatal()) {
      return fault;
    }
    return Status.fatal(
        status(thrown, operation),
        operation.describe()
            + " on stream "
            + Status.hex(stream.handle())
            + " of device "
            + stream.device.ordinal()
            + " failed: "
            + thrown,
        thrown);
  }

  /** Memory that is not there is an illegal address; all else is the kernel's own failure. */
  private static int status(Throwable thrown, Operation operation) {
    boolean memory =
        thrown instanceof IndexOutOfBoundsException || operation instanceof TransferOperation;
    return memory ? DriverException.ILLEGAL_ADDRESS : DriverException.LAUNCH_FAILED;
  }
}
