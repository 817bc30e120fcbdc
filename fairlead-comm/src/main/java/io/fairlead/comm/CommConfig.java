package io.fairlead.comm;

/**
 * The limits of one rank's engine. Immutable; checked once.
 *
 * @param eagerBytes the most bytes kept of messages that were sent to this rank and not received;
 *     beyond it a sender's completion waits. The default of 4 MiB holds a halo exchange of 64 KiB
 *     faces with 64 neighbours
 * @param eagerMessages the most such messages; the default of 4,096 is 64 for each of 64 peers
 * @param messageBytes the most bytes of active messages whose handlers have not run; beyond it a
 *     sender's completion waits, and one message of any size is taken at a time
 * @param gatedSends the most sends that wait for a completion; each has its place reserved. The
 *     default of 4,096 is 512 unfinished operations on each of 8 streams
 * @param shiftedCalls the most calls handed to the communication thread and not run yet
 * @param lentBytes the most bytes lent by {@link Comm#lend} at a time
 * @param headerBytesMax the longest header of an active message
 */
public record CommConfig(
    long eagerBytes,
    int eagerMessages,
    long messageBytes,
    int gatedSends,
    int shiftedCalls,
    long lentBytes,
    int headerBytesMax) {

  /** The limits described above. */
  public static final CommConfig DEFAULT =
      new CommConfig(4L << 20, 4096, 4L << 20, 4096, 1024, 64L << 20, 64 << 10);

  public CommConfig {
    if (eagerBytes < 0 || eagerMessages < 0 || messageBytes < 0) {
      throw new IllegalArgumentException(
          "eagerBytes, eagerMessages and messageBytes are 0 or more, not "
              + eagerBytes
              + ", "
              + eagerMessages
              + ", "
              + messageBytes);
    }
    if (gatedSends < 1 || shiftedCalls < 1 || lentBytes < 1 || headerBytesMax < 0) {
      throw new IllegalArgumentException(
          "gatedSends, shiftedCalls and lentBytes are 1 or more, headerBytesMax 0 or more, not "
              + gatedSends
              + ", "
              + shiftedCalls
              + ", "
              + lentBytes
              + ", "
              + headerBytesMax);
    }
  }

  /** The same with other bounds on messages that nobody has received yet. */
  public CommConfig withEager(long bytes, int messages) {
    return new CommConfig(
        bytes, messages, messageBytes, gatedSends, shiftedCalls, lentBytes, headerBytesMax);
  }

  /** The same with another bound on active messages that were not handled yet. */
  public CommConfig withMessageBytes(long bytes) {
    return new CommConfig(
        eagerBytes, eagerMessages, bytes, gatedSends, shiftedCalls, lentBytes, headerBytesMax);
  }

  /** The same with other numbers of gated sends and shifted calls. */
  public CommConfig withSlots(int gated, int shifted) {
    return new CommConfig(
        eagerBytes, eagerMessages, messageBytes, gated, shifted, lentBytes, headerBytesMax);
  }

  /** The same with another bound on lent buffers. */
  public CommConfig withLentBytes(long bytes) {
    return new CommConfig(
        eagerBytes, eagerMessages, messageBytes, gatedSends, shiftedCalls, bytes, headerBytesMax);
  }
}
