package io.fairlead.comm.spi;

import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/** A place for one message of a channel, traffic, source and tag. */
public abstract class ReceiveRequest extends Request {
  private final Traffic traffic;
  private final int source;
  private final int tag;
  private final MemorySegment @Nullable [] into;
  private final long bytes;

  /**
   * @param source a rank, or {@link Transport#ANY}
   * @param into where the message goes, scattered in order, its length known; null: the transport
   *     makes a segment of the length that arrives
   */
  protected ReceiveRequest(
      int channel, Traffic traffic, int source, int tag, MemorySegment @Nullable [] into) {
    super(channel);
    this.traffic = traffic;
    this.source = source;
    this.tag = tag;
    this.into = into;
    this.bytes = into == null ? -1 : Segments.bytes(into);
  }

  public final Traffic traffic() {
    return traffic;
  }

  public final int source() {
    return source;
  }

  public final int tag() {
    return tag;
  }

  public final MemorySegment @Nullable [] into() {
    return into;
  }

  /** What must arrive; -1: any length. */
  public final long bytes() {
    return bytes;
  }

  /**
   * The message has arrived.
   *
   * @param data the segment that the transport made, if {@link #into()} is null; its new owner is
   *     the receiver
   */
  public abstract void received(int source, long bytes, @Nullable MemorySegment data);
}
