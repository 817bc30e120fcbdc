package io.fairlead.comm;

import io.fairlead.comm.spi.CopyRequest;
import io.fairlead.comm.spi.Transport;
import io.fairlead.comm.spi.TransportException;
import java.lang.foreign.MemorySegment;

/** A put or get of a task's. Its outcome is in {@link Outgoing}. */
final class Copying extends CopyRequest {
  final Outgoing outgoing;
  private final boolean puts;

  Copying(
      CommEngine engine,
      boolean puts,
      int channel,
      int peer,
      long key,
      long offset,
      MemorySegment local) {
    super(channel, peer, key, offset, local);
    this.puts = puts;
    this.outgoing = new Outgoing(engine, this);
  }

  /** Inside the transport. */
  void hand(Transport transport) {
    if (puts) {
      transport.put(this);
    } else {
      transport.get(this);
    }
  }

  /** Whether what it moves comes here. */
  boolean comesHere() {
    return !puts;
  }

  @Override
  public boolean isWithdrawn() {
    return outgoing.isWithdrawn();
  }

  @Override
  public void copied() {
    outgoing.sent(local().byteSize());
  }

  @Override
  public void failed(TransportException cause) {
    outgoing.failed(cause, peer(), what());
  }

  private String what() {
    return (puts ? "put of " : "get of ")
        + local().byteSize()
        + " bytes "
        + (puts ? "to" : "from")
        + " rank "
        + peer()
        + ", key "
        + key()
        + ", offset "
        + offset();
  }
}
