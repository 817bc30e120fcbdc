package io.fairlead.comm.spi;

import java.lang.foreign.MemorySegment;

/** An active message: a header and blobs for the {@link MessageListener} of another rank. */
public abstract class MessageRequest extends Request {
  private final int target;
  private final int handler;
  private final MemorySegment header;
  private final MemorySegment[] blobs;

  protected MessageRequest(
      int channel, int target, int handler, MemorySegment header, MemorySegment[] blobs) {
    super(channel);
    this.target = target;
    this.handler = handler;
    this.header = header;
    this.blobs = blobs;
  }

  public final int target() {
    return target;
  }

  public final int handler() {
    return handler;
  }

  public final MemorySegment header() {
    return header;
  }

  /** The blobs, kept apart on the way: the receiver sees as many, with the same lengths. */
  public final MemorySegment[] blobs() {
    return blobs;
  }

  /** The header and the blobs may be reused. Says nothing about the handler. */
  public abstract void sent();
}
