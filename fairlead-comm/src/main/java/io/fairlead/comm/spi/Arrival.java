package io.fairlead.comm.spi;

import java.lang.foreign.MemorySegment;

/** An active message whose header arrived; the second step, its blobs, is up to the receiver. */
public interface Arrival {

  int source();

  int handler();

  long headerBytes();

  /**
   * Copies the header, at any time before the message is accepted or refused.
   *
   * @param into as long as the header
   * @return false: the sender withdrew the message or ended, or its memory cannot be read
   */
  boolean readHeader(MemorySegment into);

  int blobs();

  /** The length of a blob, checked to be no lie of the wire: zero or more. */
  long bytes(int blob);

  /**
   * Whether it was accepted, refused or withdrawn, so that nothing more comes of it. Inside the
   * transport; it may be over without this knowing it yet.
   */
  boolean isOver();

  /**
   * Lets the blobs come. Allowed inside {@link MessageListener#arrived} too.
   *
   * @param into one segment for each blob, of its length; the transport's until {@code landing}
   */
  void accept(MemorySegment[] into, Landing landing);

  /** Turns the message down; the sender's request fails with {@code cause}. */
  void refuse(TransportException cause);

  /** Told once how an accepted message ended. The rules for callbacks of {@link Request} hold. */
  interface Landing {

    void landed();

    /** Nothing came: the sender withdrew or ended, or memory could not be read or written. */
    void failed(TransportException cause);
  }
}
