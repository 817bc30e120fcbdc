package io.fairlead.comm.spi;

import java.lang.foreign.MemorySegment;

/** A one-sided copy between local memory and what a peer exposed. */
public abstract class CopyRequest extends Request {
  private final int peer;
  private final long key;
  private final long offset;
  private final MemorySegment local;

  /**
   * @param key what {@link Transport#expose} answered at the peer
   * @param offset where in the exposed segment the copy begins
   * @param local source of a put, target of a get; its size is the size of the copy
   */
  protected CopyRequest(int channel, int peer, long key, long offset, MemorySegment local) {
    super(channel);
    this.peer = peer;
    this.key = key;
    this.offset = offset;
    this.local = local;
  }

  public final int peer() {
    return peer;
  }

  public final long key() {
    return key;
  }

  public final long offset() {
    return offset;
  }

  public final MemorySegment local() {
    return local;
  }

  /** Put: the bytes lie at the peer. Get: they lie in {@link #local()}. */
  public abstract void copied();
}
