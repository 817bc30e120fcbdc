package io.fairlead.comm;

import io.fairlead.comm.spi.MessageRequest;
import io.fairlead.comm.spi.Segments;
import io.fairlead.comm.spi.TransportException;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/** An active message of a task's. Its outcome is in {@link Outgoing}. */
final class Messaging extends MessageRequest {
  final Outgoing outgoing;

  Messaging(
      CommEngine engine,
      int channel,
      int target,
      int handler,
      MemorySegment header,
      MemorySegment[] blobs,
      Outgoing.@Nullable Listener listener) {
    super(channel, target, handler, header, blobs);
    this.outgoing = new Outgoing(engine, this, listener);
  }

  private long bytes() {
    return header().byteSize() + Segments.bytes(blobs());
  }

  @Override
  public boolean isWithdrawn() {
    return outgoing.isWithdrawn();
  }

  @Override
  public void sent() {
    outgoing.sent(bytes());
  }

  @Override
  public void failed(TransportException cause) {
    outgoing.failed(
        cause,
        target(),
        "message of " + bytes() + " bytes to rank " + target() + ", handler " + handler());
  }
}
