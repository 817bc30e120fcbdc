package io.fairlead.comm.wire;

import io.fairlead.comm.spi.CopyRequest;
import io.fairlead.comm.spi.MessageRequest;
import io.fairlead.comm.spi.Request;
import io.fairlead.comm.spi.SendRequest;
import io.fairlead.comm.spi.TransportException;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/**
 * Something that this rank asked of a peer and that is not over.
 *
 * <pre>
 * HELD    → over      a whole send went: nothing is to be answered
 * HELD    → WAITING   a whole message or a copy went; the answer ends it
 * HELD    → OFFERED   the offer went
 * HELD    → PASSED    withdrawn, seen before it went; who withdraws it ends it
 * OFFERED → SENDING   the peer takes it; the last bulk sent ends it (a front: OFFERED again)
 * OFFERED → over      the peer does not want it, or it was withdrawn and the peer agrees
 * </pre>
 *
 * <p>{@code request} becomes null when it was taken back: the peer may still ask for its bytes, and
 * is told that there are none.
 */
class Op {
  enum State {
    HELD,
    WAITING,
    OFFERED,
    SENDING,
    PASSED,
    OVER
  }

  final Peer peer;
  final int channel;
  final int kind;
  final int tag;

  /** What a peer may take in pieces, and how long each run of it is. */
  MemorySegment[] pieces;

  long[] runs;
  @Nullable Request request;
  State state = State.HELD;

  /** By {@link Ops}; negative: it has none. */
  long id = -1;

  /** The length of a message's front that is longer than a packet and was not taken yet; else 0. */
  long frontBytes;

  /** For {@link HeldOps}. */
  @Nullable Op previous;

  @Nullable Op next;
  @Nullable HeldLane lane;

  Op(
      Peer peer,
      int channel,
      int kind,
      int tag,
      @Nullable Request request,
      MemorySegment[] pieces,
      long[] runs) {
    this.peer = peer;
    this.channel = channel;
    this.kind = kind;
    this.tag = tag;
    this.request = request;
    this.pieces = pieces;
    this.runs = runs;
  }

  /** The request was taken back, and whoever asks for it later is told so. */
  boolean dropped;

  /** The peer was asked to give it back. */
  boolean askedBack;

  /** The peer's answer, if it came before the last bulk was seen to end; null: none. */
  @Nullable Answer answer;

  /** Such a front is on its way. */
  boolean frontGoing;

  /** The peer takes the rest, and said so before the front was seen to have gone; null: no. */
  @Nullable Take early;

  /**
   * How a peer takes what was offered; {@code runs} is the print of the lengths that it expects.
   */
  record Take(int tag, long piece, int runs) {}

  /** What a peer said of an operation. */
  record Answer(@Nullable TransportException fault) {}

  void drop() {
    request = null;
    dropped = true;
  }

  /** Whoever asked was told, so the memory is not to be read any more. */
  boolean isOver() {
    return state == State.OVER;
  }

  boolean isWithdrawn() {
    Request asked = request;
    return asked == null || asked.isWithdrawn();
  }

  /** Tells whoever asked. The operation is no longer known anywhere else. */
  void tell(@Nullable TransportException fault) {
    Request asked = request;
    request = null;
    state = State.OVER;
    if (asked == null) {
      return;
    }
    if (fault != null) {
      asked.failed(fault);
      return;
    }
    switch (asked) {
      case SendRequest send -> send.sent();
      case MessageRequest message -> message.sent();
      case CopyRequest copy -> copy.copied();
      default -> throw new AssertionError("no way to end " + asked);
    }
  }
}
