package io.fairlead.comm;

import io.fairlead.comm.spi.TransportException;

/** Puts a transport's reason into the words of the operation that it ended. */
final class Failures {
  private Failures() {}

  static CommException of(int rank, int peer, String operation, TransportException cause) {
    // A failed rank and a failed gate have a cause of their own: that one is the first cause.
    Throwable first = cause.getCause() != null ? cause.getCause() : cause;
    return new CommException(cause, rank, peer, operation, first);
  }
}
