package io.fairlead.lab.comm;

import io.fairlead.comm.spi.ThreadLevel;
import io.fairlead.comm.wire.Packet;
import io.fairlead.comm.wire.Transfer;
import io.fairlead.comm.wire.Wire;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/**
 * A wire that costs next to nothing, so that what is measured over it is the protocol's: packets
 * are handed over where they lie, all ranks are driven by one thread, and there is no bulk. Counts
 * what it was asked.
 */
final class PipeWire implements Wire {
  private static final int PACKETS = 256;
  private static final int PACKETS_PER_PEER = 128;
  private static final int RING = 512;
  private static final int PACKET_BYTES = 4032;

  private final int rank;
  private final PipeWire[] all;
  private final Packet[] free = new Packet[PACKETS];
  private int freeCount;

  /** What came to this rank, and from whom. */
  private final @Nullable Packet[] ring = new @Nullable Packet[RING];

  private final int[] sources = new int[RING];
  private final int[] lengths = new int[RING];
  private int head;
  private int tail;
  long sends;
  long polls;

  private PipeWire(int rank, PipeWire[] all) {
    this.rank = rank;
    this.all = all;
    for (int i = 0; i < PACKETS; i++) {
      free[freeCount++] = new Packet(Arena.global().allocate(PACKET_BYTES, 64), i);
    }
  }

  static PipeWire[] wires(int size) {
    PipeWire[] wires = new PipeWire[size];
    for (int rank = 0; rank < size; rank++) {
      wires[rank] = new PipeWire(rank, wires);
    }
    return wires;
  }

  @Override
  public String name() {
    return "pipe";
  }

  @Override
  public int rank() {
    return rank;
  }

  @Override
  public int size() {
    return all.length;
  }

  @Override
  public ThreadLevel threadLevel() {
    return ThreadLevel.SERIALIZED;
  }

  @Override
  public int packetBytes() {
    return PACKET_BYTES;
  }

  @Override
  public int packetsPerPeer() {
    return PACKETS_PER_PEER;
  }

  @Override
  public int bulkTags() {
    return BULK_TAGS_LEAST;
  }

  @Override
  public long bulkBytesMax() {
    return 1L << 30;
  }

  @Override
  public @Nullable Packet take() {
    return freeCount == 0 ? null : free[--freeCount];
  }

  @Override
  public void give(Packet packet) {
    free[freeCount++] = packet;
  }

  @Override
  public void send(int peer, Packet packet, int bytes) {
    sends++;
    PipeWire target = all[peer];
    int slot = target.tail++ & RING - 1;
    target.ring[slot] = packet;
    target.sources[slot] = rank;
    target.lengths[slot] = bytes;
  }

  @Override
  public void sendBulk(int peer, int tag, MemorySegment memory, Transfer transfer) {
    throw new UnsupportedOperationException("no bulk: measure short messages");
  }

  @Override
  public void receiveBulk(int peer, int tag, MemorySegment memory, Transfer transfer) {
    throw new UnsupportedOperationException("no bulk: measure short messages");
  }

  @Override
  public int poll(Listener listener) {
    polls++;
    int found = 0;
    for (int end = tail; head != end; head++) {
      int slot = head & RING - 1;
      Packet packet = ring[slot];
      if (packet == null) {
        throw new AssertionError("the ring is too short");
      }
      int source = sources[slot];
      listener.packet(source, packet.memory(), lengths[slot]);
      all[source].give(packet);
      found++;
    }
    return found;
  }

  @Override
  public void pause() {
    // One thread drives all ranks: nobody else could do anything meanwhile.
  }

  @Override
  public void close() {}
}
