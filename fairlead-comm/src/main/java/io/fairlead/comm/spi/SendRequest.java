package io.fairlead.comm.spi;

import java.lang.foreign.MemorySegment;

/** A message to be matched by a {@link ReceiveRequest} of the same channel, traffic and tag. */
public abstract class SendRequest extends Request {
  private final Traffic traffic;
  private final int target;
  private final int tag;
  private final MemorySegment[] blobs;
  private final long bytes;

  /** Keeps {@code blobs}; together they are one run of bytes. */
  protected SendRequest(int channel, Traffic traffic, int target, int tag, MemorySegment[] blobs) {
    super(channel);
    this.traffic = traffic;
    this.target = target;
    this.tag = tag;
    this.blobs = blobs;
    this.bytes = Segments.bytes(blobs);
  }

  public final Traffic traffic() {
    return traffic;
  }

  public final int target() {
    return target;
  }

  public final int tag() {
    return tag;
  }

  /** The pieces of the message in order; gathered by the transport. Not to be changed. */
  public final MemorySegment[] blobs() {
    return blobs;
  }

  public final long bytes() {
    return bytes;
  }

  /** The blobs may be reused: the data lies at its destination, or in the transport's memory. */
  public abstract void sent();
}
