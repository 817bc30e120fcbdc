package io.fairlead.comm.spi;

import org.jspecify.annotations.Nullable;

/**
 * Something that a transport was asked to do. Each request is posted once and ends once: with its
 * own "done" method, with {@link #failed}, or by a {@code cancel} that returned true.
 *
 * <p><b>Callbacks</b> run on the thread that found the request done: inside a call into this
 * transport, or (in one process) into a peer's. The transport holds no lock meanwhile, so a
 * callback of a {@link ThreadLevel#MULTIPLE} transport may call back in; at lower levels the engine
 * puts callbacks off until the call has been left. A callback never throws and never blocks.
 *
 * <p><b>Memory</b> named by a request is the transport's from the post to its end.
 */
public abstract class Request {
  private final int channel;

  /** Volatile: who withdraws a request must see what became of it, or be seen. */
  private volatile @Nullable Object note;

  protected Request(int channel) {
    this.channel = channel;
  }

  /** The channel, as {@link Transport#openChannel} named it. */
  public final int channel() {
    return channel;
  }

  /** For the transport alone: what it remembers about this request. */
  public final @Nullable Object note() {
    return note;
  }

  /** For the transport alone. */
  public final void note(@Nullable Object note) {
    this.note = note;
  }

  /**
   * Whether nobody wants this done any more. Asked before a message is matched, under the
   * transport's locks: a plain look at a state, nothing else.
   */
  public abstract boolean isWithdrawn();

  /** The request ended without success. Its memory is the caller's again. */
  public abstract void failed(TransportException cause);
}
