package io.fairlead.comm.spi;

/** Takes the active messages of one channel. */
public interface MessageListener {

  /**
   * A message is here: its header can be read, its blobs have lengths but no place yet. The
   * listener accepts or refuses it, now or later, on any thread that may enter the transport. Until
   * then it lies where it is, so a listener that waits holds the sender back.
   *
   * <p>Called in the order in which each source sent. Must not block or throw.
   */
  void arrived(Arrival arrival);
}
