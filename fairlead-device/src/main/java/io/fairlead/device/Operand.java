package io.fairlead.device;

/**
 * Device memory that operations use: what a stream needs to know of a buffer.
 *
 * <p>For each operation the stream calls {@link #acquire} once per mention, by {@link #order}, and
 * afterwards exactly one of {@link #recorded} and {@link #abandoned} per acquired mention. All
 * three run on the caller's thread, under the stream's turn and never between binding a context and
 * restoring it; so they may take a short lock of their own and may enqueue on the same stream, but
 * must not wait for device work: the turn of the stream would be held meanwhile.
 */
public interface Operand {
  /** Size in bytes. */
  long bytes();

  /**
   * Orders the coming operation of {@code stream} after the work that it depends on (see {@link
   * DeviceStream#after}) and returns the device address, valid until {@code recorded} or {@code
   * abandoned}.
   *
   * @throws IllegalStateException if the memory was closed; no operation is enqueued then
   */
  long acquire(DeviceStream stream, Access access);

  /** The operation was enqueued as number {@code sequence}. Must not throw. */
  void recorded(DeviceStream stream, long sequence, Access access);

  /** The operation was refused; the memory was not touched. Must not throw. */
  void abandoned(DeviceStream stream, Access access);

  /**
   * Keeps the memory where it is, for a graph that is made with its address, and returns that
   * address; orders nothing. Each is followed by one {@link #letGo}, and a close meanwhile takes
   * effect at the last of them. Called as {@code acquire} is, or by a task that builds a graph.
   *
   * @throws IllegalStateException if the memory was closed
   * @throws IllegalArgumentException if it is another context's
   * @throws UnsupportedOperationException if graphs cannot use this kind of memory
   */
  default long hold(DeviceContext context) {
    throw new UnsupportedOperationException(
        "a graph cannot use this memory, which may move: " + this);
  }

  /** The graph is gone. Any thread, the device manager's too; must not throw. */
  default void letGo() {}

  /**
   * Where this memory stands in the one order in which all operations acquire: operands are
   * acquired by ascending number, and of one number those that are written first. So two operations
   * that share several operands cannot each hold one that the other waits for. Constant; views of
   * one memory share it.
   */
  default long order() {
    return 0;
  }
}
