package io.fairlead.device;

/**
 * Device memory that operations use: what a stream needs to know of a buffer.
 *
 * <p>For each operation the stream calls {@link #acquire} once per mention, by {@link #order}, and
 * afterwards exactly one of {@link #recorded} and {@link #abandoned} per acquired mention. All
 * three run on the caller's thread, under the stream's turn and never between binding a context and
 * restoring it; so they may take a short lock of their own and may enqueue on the same stream, but
 * must not wait for device work: the turn of the stream would be held meanwhile.
 *
 * <p>Memory that may move answers {@link #AWAY} while it is not on the device. The stream then lets
 * go of what it has acquired for the operation, gives its turn up, calls {@link #bringBack}, and
 * begins again.
 */
public interface Operand {
  /** In place of an address: the memory is not on the device. */
  long AWAY = -1;

  /** Operands that do not leave the device before this is closed. */
  interface Stay extends AutoCloseable {
    /** They may move again. Once; any thread; must neither block nor throw. */
    @Override
    void close();
  }

  /** Size in bytes. */
  long bytes();

  /**
   * Orders the coming operation of {@code stream} after the work that it depends on (see {@link
   * DeviceStream#after}) and returns the device address, valid until {@code recorded} or {@code
   * abandoned}; or {@link #AWAY}, and then it has done nothing, and neither of the two follows.
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
   * {@link #AWAY} means the same as there: nothing is held then.
   *
   * @param graph for whom; the same object lets it go
   * @throws IllegalStateException if the memory was closed
   * @throws IllegalArgumentException if it is another context's
   * @throws UnsupportedOperationException if graphs cannot use this kind of memory
   */
  default long hold(DeviceContext context, Object graph) {
    throw new UnsupportedOperationException(
        "a graph cannot use this memory, which may move: " + this);
  }

  /**
   * Asked of an operand that was {@link #AWAY}, by a task that holds no turn: brings all those
   * among {@code operands} that it knows how to bring back to the device, and keeps them there.
   * Parks until there is room for all of them together; interrupt, cancellation and deadline of the
   * task end that. Their bytes need not have arrived: uses are ordered after that.
   *
   * @param stream that the operation is for
   * @param operands of the operation, this one among them
   * @throws OutOfDeviceMemoryException if there was no room in time, or never can be for all of
   *     them at once
   * @throws IllegalStateException if one of them was closed, or the caller must not wait
   */
  default Stay bringBack(DeviceStream stream, Operand[] operands) {
    throw new IllegalStateException(this + " is not on the device, and does not come back");
  }

  /** The graph was closed: it ends by itself from now on. Any thread; must not throw. */
  default void leaving(Object graph) {}

  /** The graph is gone. Any thread, the device manager's too; must not throw. */
  default void letGo(Object graph) {}

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
