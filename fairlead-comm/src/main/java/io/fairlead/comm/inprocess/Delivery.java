package io.fairlead.comm.inprocess;

import io.fairlead.comm.spi.ReceiveRequest;
import io.fairlead.comm.spi.Segments;
import io.fairlead.comm.spi.TransportException;
import io.fairlead.comm.spi.TransportException.Reason;
import java.lang.foreign.MemorySegment;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/** Copies one message to its receive. No shared state; runs outside every lock. */
final class Delivery {
  /** About the time of a small copy. */
  private static final long PAUSE_NANOS = 1_000;

  private Delivery() {}

  /**
   * Ends {@code posted} with the message in {@code blobs}: received, or failed if the sizes differ
   * or memory cannot be reached.
   *
   * @return why the blobs could not be read or the target not be written; null if all went well or
   *     only the receiver is to blame
   */
  static @Nullable TransportException deliver(
      MemorySegment[] blobs, long bytes, int source, int tag, Posted posted) {
    return deliver(blobs, bytes, source, tag, posted, null);
  }

  /**
   * As the other, and ends {@code from} once its blobs are no longer read, before the receive is
   * told: what that sets off may cancel the send, which must not wait for this very thread.
   */
  static @Nullable TransportException deliver(
      MemorySegment[] blobs,
      long bytes,
      int source,
      int tag,
      Posted posted,
      @Nullable Envelope from) {
    ReceiveRequest request = posted.request;
    if (request.bytes() >= 0 && request.bytes() != bytes) {
      end(posted, from);
      request.failed(mismatch(bytes, source, tag, request.bytes()));
      return null;
    }
    MemorySegment made = null;
    try {
      MemorySegment[] into = request.into();
      if (into == null) {
        made = Segments.allocate(bytes);
        into = new MemorySegment[] {made};
      }
      Segments.copy(blobs, into);
    } catch (RuntimeException | OutOfMemoryError e) {
      end(posted, from);
      TransportException fault = unreachable(bytes, source, tag, e);
      request.failed(fault);
      return fault;
    }
    end(posted, from);
    request.received(source, bytes, made);
    return null;
  }

  private static void end(Posted posted, @Nullable Envelope from) {
    posted.state = Posted.ENDED;
    if (from != null) {
      from.state = Envelope.ENDED;
    }
  }

  /** Another thread copies the very message that is waited for: a bounded time, so no wake-up. */
  static void pause() {
    LockSupport.parkNanos(PAUSE_NANOS);
  }

  static TransportException withdrawn() {
    return new TransportException(Reason.WITHDRAWN, "withdrawn before it was posted", null);
  }

  static TransportException unreachable(long bytes, int source, int tag, Throwable cause) {
    return new TransportException(
        Reason.MEMORY,
        "the message of "
            + bytes
            + " bytes from rank "
            + source
            + ", tag "
            + tag
            + " could not be copied ("
            + cause.getMessage()
            + "): keep the arena of a segment open until the operation has completed",
        cause);
  }

  private static TransportException mismatch(long bytes, int source, int tag, long expected) {
    return new TransportException(
        Reason.SIZE_MISMATCH,
        "the message from rank "
            + source
            + ", tag "
            + tag
            + " has "
            + bytes
            + " bytes, the receive has room for exactly "
            + expected
            + ": make both sides agree, or receive without segments to take any length",
        null);
  }
}
