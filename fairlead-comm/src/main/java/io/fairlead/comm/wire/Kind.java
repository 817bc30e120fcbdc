package io.fairlead.comm.wire;

import org.jspecify.annotations.Nullable;

/**
 * What a packet says. Each has the same header, {@link Frame}; what its fields mean and what
 * follows it differ. The number {@link Frame#SHORT} is no kind's: it says that a packet is an EAGER
 * in short form. {@code id} is the number of an operation of the rank that is to answer, or of the
 * one that asked.
 */
enum Kind {
  /** First of all, once: {@link Hello}. */
  HELLO(0),
  /** Only the acknowledgement and the credits that each header carries. Not counted itself. */
  ACK(1),
  /** A whole send: channel, tag, bytes; then the bytes, or with FAULT why there are none. */
  EAGER(2),
  /** A send whose bytes stay with the sender: channel, tag, bytes, id. */
  OFFER(3),
  /** Yes to an offer: its id, the bulk tag, the bytes of a piece. The receives are posted. */
  TAKE(4),
  /** An operation is over: its id, 0 or why not ({@link Answers}); then words. */
  ENDED(5),
  /** Messages are over, and well: their ids follow. */
  DONE(6),
  /** A whole active message: channel, handler, bytes of all that follows, id; {@link Front}. */
  MESSAGE(7),
  /** An active message whose blobs stay with the sender, its front here. */
  MESSAGE_OFFER(8),
  /** The same with a front longer than a packet; {@code bytes} is its length, taken first. */
  FRONT_OFFER(9),
  /** A whole put: id, bytes; then key, offset and the bytes. */
  PUT(10),
  /** A put whose bytes are to be taken: id, bytes; then key and offset. */
  PUT_OFFER(11),
  /** A get: id, bytes; then key and offset. */
  GET(12),
  /** What a get asked for: its id, bytes; then the bytes. */
  GOT(13),
  /** What a get asked for, to be taken: id of the offer, bytes; then the id of the get. */
  GET_OFFER(14),
  /** The sender holds messages of this channel and tag back, for want of credit. */
  HELD(15),
  /** Send the first of what you hold of this channel and tag: there is a place for it. */
  PULL(16),
  /** Nothing is held of it any more; with PULLED: and so a pull found nothing. */
  EMPTY(17),
  /** The asker wants an offer or message back, {@code id}; answered by ENDED unless too late. */
  WITHDRAW(18),
  /** An offer is used up, its bytes are not wanted: its id; answered by USED. */
  USE(23),
  /** Answer to USE: the id; the tag is 1 if the offer had been taken back. */
  USED(24),
  /** The rank's part in a channel is over; answered by SEEN. */
  CLOSE(19),
  /** The close of a channel was seen: whatever the rank sent there has come before this. */
  SEEN(20),
  /** The rank cannot go on; words. */
  ABORT(21),
  /** The rank is closed; nothing comes from it any more. */
  BYE(22);

  private static final @Nullable Kind[] BY_NUMBER = byNumber();

  /** What stands in the packet. */
  final int number;

  Kind(int number) {
    this.number = number;
  }

  /** The kind of this number, 0 to 255; null: there is none. */
  static @Nullable Kind of(int number) {
    return BY_NUMBER[number];
  }

  private static @Nullable Kind[] byNumber() {
    @Nullable Kind[] kinds = new @Nullable Kind[256];
    for (Kind kind : values()) {
      if (kinds[kind.number] != null) {
        throw new AssertionError(kind + " and " + kinds[kind.number] + " have one number");
      }
      kinds[kind.number] = kind;
    }
    return kinds;
  }
}
