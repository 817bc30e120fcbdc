package io.fairlead.comm.inprocess;

import io.fairlead.comm.spi.Arrival;
import io.fairlead.comm.spi.MessageRequest;
import io.fairlead.comm.spi.TransportException;
import io.fairlead.comm.spi.TransportException.Reason;
import java.lang.foreign.MemorySegment;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicInteger;
import org.jspecify.annotations.Nullable;

/**
 * An active message on its way, its bytes still in the sender's memory.
 *
 * <pre>
 * OFFERED → COPYING → OVER     accepted: by the receiver's thread
 * OFFERED → COPYING → OFFERED  the header was read
 * OFFERED → OVER               refused by the receiver, or withdrawn by the sender
 * </pre>
 */
final class InProcessArrival implements Arrival {
  private static final int OFFERED = 0;
  private static final int COPYING = 1;
  private static final int OVER = 2;

  /** Null once it was taken back. Plain: who still sees it finds {@code state}. */
  private @Nullable MessageRequest request;

  private final int source;
  private final int handler;
  private final Inbox sender;

  /** The only shared state: who moves it out of OFFERED ends the request. */
  private final AtomicInteger state = new AtomicInteger(OFFERED);

  InProcessArrival(MessageRequest request, int source, Inbox sender) {
    this.request = request;
    this.source = source;
    this.handler = request.handler();
    this.sender = sender;
  }

  @Override
  public int source() {
    return source;
  }

  @Override
  public int handler() {
    return handler;
  }

  @Override
  public long headerBytes() {
    MessageRequest known = request;
    return known == null ? 0 : known.header().byteSize();
  }

  @Override
  public boolean readHeader(MemorySegment into) {
    if (!state.compareAndSet(OFFERED, COPYING)) {
      return false;
    }
    try {
      into.copyFrom(claimed().header());
      state.set(OFFERED);
      return true;
    } catch (RuntimeException e) {
      state.set(OFFERED);
      withdraw(unreachable(e));
      return false;
    }
  }

  @Override
  public int blobs() {
    MessageRequest known = request;
    return known == null ? 0 : known.blobs().length;
  }

  @Override
  public long bytes(int blob) {
    MessageRequest known = request;
    return known == null ? 0 : known.blobs()[blob].byteSize();
  }

  /** By who has moved it out of OFFERED. */
  private MessageRequest claimed() {
    return Objects.requireNonNull(request);
  }

  @Override
  public void accept(MemorySegment[] into, Landing landing) {
    if (!state.compareAndSet(OFFERED, COPYING)) {
      landing.failed(
          new TransportException(
              Reason.PEER_CLOSED, "rank " + source + " withdrew its message", null));
      return;
    }
    MessageRequest accepted = claimed();
    TransportException fault = copy(accepted.blobs(), into);
    request = null; // whoever keeps this keeps none of its memory
    state.set(OVER);
    sender.forget(this);
    if (fault == null) {
      landing.landed();
      accepted.sent();
    } else {
      landing.failed(fault);
      accepted.failed(fault);
    }
  }

  private @Nullable TransportException copy(MemorySegment[] blobs, MemorySegment[] into) {
    try {
      for (int i = 0; i < into.length; i++) {
        into[i].copyFrom(blobs[i]);
      }
      return null;
    } catch (RuntimeException e) {
      return unreachable(e);
    }
  }

  private TransportException unreachable(RuntimeException cause) {
    return new TransportException(
        Reason.MEMORY,
        "the message from rank "
            + source
            + " for handler "
            + handler()
            + " could not be copied ("
            + cause.getMessage()
            + "): keep the arena of a segment open until the operation has completed",
        cause);
  }

  @Override
  public void refuse(TransportException cause) {
    withdraw(cause);
  }

  /** Ends the request with {@code cause} unless it was accepted or ended before. */
  void withdraw(TransportException cause) {
    MessageRequest refused = request;
    if (cancel() && refused != null) {
      refused.failed(cause);
    }
  }

  /** As {@link io.fairlead.comm.spi.Transport#cancel}. */
  boolean cancel() {
    while (!isOver()) {
      if (state.compareAndSet(OFFERED, OVER)) {
        request = null;
        sender.forget(this);
        return true;
      }
      Delivery.pause();
    }
    return false;
  }

  @Override
  public boolean isOver() {
    return state.get() == OVER;
  }
}
