package io.fairlead.comm.wire;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;

/**
 * Where things stand in a packet. Little-endian, whatever the machine.
 *
 * <pre>
 *  0  kind (1), flags (1), nothing (2), packets received from you so far (4)
 *  8  of your credit returned so far: messages (4), bytes (4)
 * 16  channel (4), tag or handler (4)
 * 24  bytes (8)
 * 32  id (8)
 * 40  what follows
 * </pre>
 *
 * <p>Counts go around at 2³²; only differences are looked at.
 *
 * <p>The <b>short form</b> is that of a whole send of data, without flags, whose route was spoken
 * before ({@link Routes}), while no counts need be told ({@link Peer#isToTell}):
 *
 * <pre>
 *  0  {@link #SHORT} (1), number of the route (1)
 *  2  its bytes
 * </pre>
 *
 * <p>Eight bytes make a packet of ten so, which is the most that Open MPI hands over in one slot.
 */
final class Frame {
  static final int HEADER = 40;

  /** Stands where a kind does in the full form. */
  static final int SHORT = 25;

  static final int SHORT_HEADER = 2;

  /** The message belongs to a collective. */
  static final int COLLECTIVE = 1;

  /** An active message: for what is said of lanes. */
  static final int MESSAGE = 2;

  /** The answer to a pull: no credit was used. */
  static final int PULLED = 4;

  /** Came from what was held, and nothing of its channel and tag is held now. */
  static final int LAST = 8;

  /** The sender must copy the bytes through memory of its own, so pieces are short. */
  static final int STAGED = 16;

  /** The sender's memory could not be read: the message comes without bytes. */
  static final int FAULT = 32;

  /** Words that a packet carries are cut here. */
  static final int WORDS_MAX = 300;

  private static final ValueLayout.OfLong LONG =
      ValueLayout.JAVA_LONG.withOrder(ByteOrder.LITTLE_ENDIAN);
  private static final ValueLayout.OfLong LONG_ANYWHERE =
      ValueLayout.JAVA_LONG_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);

  private static final ValueLayout.OfShort TWO_BYTES =
      ValueLayout.JAVA_SHORT.withOrder(ByteOrder.LITTLE_ENDIAN);

  private Frame() {}

  // --- the header -------------------------------------------------------------------------------

  static void stamp(MemorySegment packet, int kind, int flags, int received) {
    packet.set(LONG, 0, kind | flags << 8 | (long) received << 32);
  }

  static void credits(MemorySegment packet, int messages, int bytes) {
    packet.set(LONG, 8, Integer.toUnsignedLong(messages) | (long) bytes << 32);
  }

  static void lane(MemorySegment packet, int channel, int tag) {
    packet.set(LONG, 16, lane(channel, tag));
  }

  /** As it stands in the header. */
  static long lane(int channel, int tag) {
    return Integer.toUnsignedLong(channel) | (long) tag << 32;
  }

  static void bytes(MemorySegment packet, long bytes, long id) {
    packet.set(LONG, 24, bytes);
    packet.set(LONG, 32, id);
  }

  static long word(MemorySegment packet) {
    return packet.get(LONG, 0);
  }

  static int kind(long word) {
    return (int) word & 0xff;
  }

  static int flags(long word) {
    return (int) word >>> 8 & 0xff;
  }

  static int high(long word) {
    return (int) (word >>> 32);
  }

  static long credits(MemorySegment packet) {
    return packet.get(LONG, 8);
  }

  static int channel(MemorySegment packet) {
    return (int) packet.get(LONG, 16);
  }

  static int tag(MemorySegment packet) {
    return high(packet.get(LONG, 16));
  }

  static long bytes(MemorySegment packet) {
    return packet.get(LONG, 24);
  }

  static long id(MemorySegment packet) {
    return packet.get(LONG, 32);
  }

  // --- the short form ---------------------------------------------------------------------------

  static void shorten(MemorySegment packet, int route) {
    packet.set(TWO_BYTES, 0, (short) (SHORT | route << 8));
  }

  static boolean isShort(MemorySegment packet, int bytes) {
    return bytes >= SHORT_HEADER && packet.get(ValueLayout.JAVA_BYTE, 0) == SHORT;
  }

  static int route(MemorySegment packet) {
    return packet.get(ValueLayout.JAVA_BYTE, 1) & 0xff;
  }

  // --- what follows -----------------------------------------------------------------------------

  static void putLong(MemorySegment memory, long offset, long value) {
    memory.set(LONG_ANYWHERE, offset, value);
  }

  static long getLong(MemorySegment memory, long offset) {
    return memory.get(LONG_ANYWHERE, offset);
  }

  /** Writes words after the header, as many as are useful and fit; answers how many bytes. */
  static int putWords(MemorySegment packet, String words) {
    byte[] all = words.getBytes(StandardCharsets.UTF_8);
    int count = (int) Math.min(Math.min(all.length, WORDS_MAX), packet.byteSize() - HEADER);
    MemorySegment.copy(all, 0, packet, ValueLayout.JAVA_BYTE, HEADER, count);
    return count;
  }

  static String getWords(MemorySegment packet, int bytes) {
    int count = Math.min(bytes - HEADER, WORDS_MAX);
    byte[] all = new byte[Math.max(count, 0)];
    MemorySegment.copy(packet, ValueLayout.JAVA_BYTE, HEADER, all, 0, all.length);
    // Nothing of it may move a terminal about, whatever the peer sent.
    return new String(all, StandardCharsets.UTF_8).replaceAll("\\p{Cntrl}", "?");
  }
}
