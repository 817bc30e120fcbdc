package io.fairlead.comm.wire;

import java.lang.foreign.MemorySegment;

/**
 * The first packet to each peer: who speaks, and how much it keeps for the peer. Its place and its
 * first two words never change, whatever the version.
 */
final class Hello {
  /** "fairlead" in ASCII. */
  private static final long MAGIC = 0x6661_6972_6c65_6164L;

  /** Ranks with different versions do not work together. */
  private static final long VERSION = 2;

  private static final int WORDS = 6;
  static final int BYTES = WORDS * Long.BYTES;

  private Hello() {}

  static void write(Rank rank, MemorySegment packet) {
    put(packet, 0, MAGIC);
    put(packet, 1, VERSION);
    put(packet, 2, rank.size);
    put(packet, 3, rank.wire.packetBytes());
    put(packet, 4, rank.wire.packetsPerPeer());
    put(packet, 5, Integer.toUnsignedLong(rank.grantMessages) | (long) rank.grantBytes << 32);
  }

  private static void put(MemorySegment packet, int word, long value) {
    Frame.putLong(packet, Frame.HEADER + (long) word * Long.BYTES, value);
  }

  private static long get(MemorySegment packet, int word) {
    return Frame.getLong(packet, Frame.HEADER + (long) word * Long.BYTES);
  }

  /** Takes a peer's; answers what is wrong with it, or an empty string. */
  static String read(Rank rank, Peer peer, MemorySegment packet, int payload) {
    if (payload < 2 * Long.BYTES || get(packet, 0) != MAGIC) {
      return "a first packet that is no greeting of Fairlead's";
    }
    if (get(packet, 1) != VERSION) {
      return "a greeting of version " + get(packet, 1) + ", here it is " + VERSION;
    }
    if (payload != BYTES) {
      return "a greeting of " + payload + " bytes";
    }
    return differences(rank, peer, packet);
  }

  private static String differences(Rank rank, Peer peer, MemorySegment packet) {
    long credit = get(packet, 5);
    int messages = (int) credit;
    int bytes = (int) (credit >>> 32);
    if (get(packet, 2) != rank.size) {
      return "that there are " + get(packet, 2) + " ranks, here it is " + rank.size;
    }
    if (get(packet, 3) != rank.wire.packetBytes() || get(packet, 4) != rank.wire.packetsPerPeer()) {
      return "packets of "
          + get(packet, 3)
          + " bytes, "
          + get(packet, 4)
          + " a peer, here it is "
          + rank.wire.packetBytes()
          + " and "
          + rank.wire.packetsPerPeer();
    }
    if (messages < 0 || bytes < 0) {
      return "a credit of " + messages + " messages and " + bytes + " bytes";
    }
    peer.grant(messages, bytes);
    return "";
  }
}
