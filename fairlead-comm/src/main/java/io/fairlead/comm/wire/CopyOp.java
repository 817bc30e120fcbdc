package io.fairlead.comm.wire;

import io.fairlead.comm.spi.CopyRequest;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/** A put or get of this rank's, or what a peer's get asked of it. */
final class CopyOp extends Op {
  enum Task {
    PUT,
    GET,
    /** The answer to a peer's get, which is {@code asked}. */
    SERVE
  }

  final Task task;
  final long asked;

  private CopyOp(
      Task task,
      long asked,
      Peer peer,
      int channel,
      @Nullable CopyRequest request,
      MemorySegment memory) {
    super(
        peer, channel, 0, 0, request, new MemorySegment[] {memory}, new long[] {memory.byteSize()});
    this.task = task;
    this.asked = asked;
  }

  static CopyOp of(Task task, Peer peer, CopyRequest request) {
    return new CopyOp(task, -1, peer, request.channel(), request, request.local());
  }

  static CopyOp serve(Peer peer, long asked, MemorySegment memory) {
    return new CopyOp(Task.SERVE, asked, peer, 0, null, memory);
  }

  MemorySegment memory() {
    return pieces[0];
  }

  long bytes() {
    return runs[0];
  }

  /** A copy that began goes on to its end. */
  @Override
  boolean isWithdrawn() {
    return false;
  }
}
