package io.fairlead.comm;

import io.fairlead.comm.spi.SendRequest;
import io.fairlead.comm.spi.Traffic;
import io.fairlead.comm.spi.TransportException;
import io.fairlead.task.Completion;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/** A send of a task's. Its outcome is in {@link Outgoing}. */
final class Sending extends SendRequest {
  final Outgoing outgoing;

  Sending(CommEngine engine, int channel, int target, int tag, MemorySegment[] blobs) {
    super(channel, Traffic.DATA, target, tag, blobs);
    this.outgoing = new Outgoing(engine, this);
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
    outgoing.failed(cause, target(), what());
  }

  private String what() {
    return "send of " + bytes() + " bytes to rank " + target() + ", tag " + tag();
  }

  Completion<@Nullable Void> completion() {
    return outgoing.completion();
  }
}
