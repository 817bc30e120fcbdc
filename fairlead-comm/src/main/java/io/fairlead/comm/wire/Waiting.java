package io.fairlead.comm.wire;

import io.fairlead.comm.spi.ReceiveRequest;
import org.jspecify.annotations.Nullable;

/**
 * A receive that is not over.
 *
 * <pre>
 * QUEUED  → over      a whole message came, or it was withdrawn, or there is nothing to wait for
 * QUEUED  → CLAIMING  it has taken a message whose bytes are still on their way to memory of ours
 * QUEUED  → LANDING   the bytes of its message are on their way to their place
 * QUEUED  → ASKING    its message has another length: the sender is asked whether it stands
 * CLAIMING, ASKING, LANDING → QUEUED   the sender took the message back
 * </pre>
 *
 * <p>Used again after its end: a note of an old request is told by {@code request}.
 */
final class Waiting {
  enum State {
    QUEUED,
    CLAIMING,
    ASKING,
    LANDING,
    OVER
  }

  @Nullable ReceiveRequest request;

  /** Of two receives that could take a message, the one with the lower order does. */
  long order;

  State state = State.OVER;
  @Nullable Lane lane;
  @Nullable Waiting previous;
  @Nullable Waiting next;

  /** CLAIMING. */
  @Nullable Kept claimed;

  /** LANDING. */
  @Nullable Inbound inbound;

  @SuppressWarnings("ReferenceEquality") // the very request: places are used again
  boolean isOf(ReceiveRequest asked) {
    return request == asked;
  }

  ReceiveRequest wanted() {
    ReceiveRequest asked = request;
    if (asked == null) {
      throw new AssertionError("a receive that is over");
    }
    return asked;
  }
}
