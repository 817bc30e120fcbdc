package io.fairlead.comm;

import io.fairlead.comm.spi.TransportException;
import io.fairlead.fault.FairleadException;

/**
 * A message or collective failed. The text names the operation, the rank and the peer; {@link
 * #getCause()} is what happened below, for a failed rank the failure of that rank.
 */
public final class CommException extends FairleadException {
  private final TransportException.Reason reason;
  private final int rank;
  private final int peer;
  private final String operation;

  CommException(TransportException below, int rank, int peer, String operation, Throwable cause) {
    super(below.severity(), operation + " on rank " + rank + ": " + below.getMessage(), cause);
    this.reason = below.reason();
    this.rank = rank;
    this.peer = peer;
    this.operation = operation;
  }

  /** The kind of failure. */
  public TransportException.Reason reason() {
    return reason;
  }

  /** The rank whose operation failed. */
  public int rank() {
    return rank;
  }

  /** The other side, or {@link Comm#ANY} if there is no single one. */
  public int peer() {
    return peer;
  }

  /** What failed, such as {@code send of 8 bytes to rank 1, tag 7}. */
  public String operation() {
    return operation;
  }
}
