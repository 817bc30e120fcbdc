package io.fairlead.comm.wire;

/**
 * One bulk send or receive, from its post until the wire says how it ended. Ends once, inside
 * {@link Wire#poll}. May be posted again once it has ended.
 *
 * <p>Both methods are called with no lock of the wire held and may post to the wire, but not poll
 * it. They do not throw.
 */
public abstract class Transfer {
  private int slot;

  protected Transfer() {}

  /** For the wire alone: where it keeps its request while this is live. */
  public final int slot() {
    return slot;
  }

  /** For the wire alone. */
  public final void slot(int newSlot) {
    slot = newSlot;
  }

  /**
   * A send: the memory may be reused. A receive: the bytes lie there, and the wire writes no more.
   *
   * @param bytes a send: what was given. A receive: how many came; fewer than the memory holds, and
   *     none at all, are no failure here
   */
  public abstract void done(long bytes);

  /**
   * It did not work, and the wire touches the memory no more. More came than the memory holds, the
   * library reported an error, or the peer is gone; the latter is said to the listener too.
   *
   * @param cause names what the library said, its number and its words
   */
  public abstract void failed(Throwable cause);
}
