package io.fairlead.comm.wire;

import java.lang.foreign.MemorySegment;

/**
 * A piece of native memory of a {@link Wire}, made once and used again and again. Belongs to one
 * side at a time: from {@link Wire#take} until {@link Wire#send} or {@link Wire#give} to the core,
 * else to the wire.
 */
public final class Packet {
  private final MemorySegment memory;
  private final int index;

  /**
   * @param memory native, aligned to 64 bytes, {@link Wire#packetBytes} long, reachable from every
   *     thread that may enter the wire
   * @param index the wire's own name for it
   */
  public Packet(MemorySegment memory, int index) {
    this.memory = memory;
    this.index = index;
  }

  public MemorySegment memory() {
    return memory;
  }

  public int index() {
    return index;
  }
}
