package io.fairlead.comm.spi;

import io.fairlead.fault.FairleadException;
import io.fairlead.fault.Severity;
import org.jspecify.annotations.Nullable;

/** Why a transport could not do what a request asked. The engine says which operation it was. */
public final class TransportException extends FairleadException {

  /** The kinds that a caller may want to tell apart. */
  public enum Reason {
    /** The sizes on the two sides differ; the message is used up. */
    SIZE_MISMATCH,
    /** This rank closed the channel. */
    CLOSED,
    /** The rank on the other side closed the channel. */
    PEER_CLOSED,
    /** A rank failed; the whole world of ranks fails with it, and with its cause. */
    PEER_FAILED,
    /** The memory of a request could not be read or written, or its key is not known. */
    MEMORY,
    /** What the send waited for failed; it was never posted. */
    GATE,
    /** Its completion was cancelled before it could be posted. */
    WITHDRAWN,
    /** The queue to the communication thread is full, and the caller must not wait. */
    BACK_PRESSURE,
    /** The library below reported an error. */
    LIBRARY,
    /** All that was waited for has ended, some of it with a failure. */
    INCOMPLETE
  }

  private final Reason reason;

  public TransportException(Reason reason, String message, @Nullable Throwable cause) {
    super(severity(reason), message, cause);
    this.reason = reason;
  }

  /** What fails because this rank has closed the channel, as every transport says it. */
  public static TransportException closed(int rank) {
    return new TransportException(
        Reason.CLOSED, "rank " + rank + " closed the communicator itself", null);
  }

  /** What fails because only a peer could do it that has closed the channel. */
  public static TransportException peerClosed(int peer) {
    return new TransportException(
        Reason.PEER_CLOSED,
        "rank "
            + peer
            + " closed the communicator before that; let the ranks meet, in a barrier say, before"
            + " they close",
        null);
  }

  public Reason reason() {
    return reason;
  }

  private static Severity severity(Reason reason) {
    return switch (reason) {
      case SIZE_MISMATCH,
          CLOSED,
          PEER_CLOSED,
          MEMORY,
          GATE,
          WITHDRAWN,
          BACK_PRESSURE,
          LIBRARY,
          INCOMPLETE ->
          Severity.OPERATION;
      case PEER_FAILED -> Severity.CONTEXT;
    };
  }
}
