package io.fairlead.comm.wire;

import io.fairlead.comm.spi.TransportException;
import io.fairlead.comm.spi.TransportException.Reason;
import org.jspecify.annotations.Nullable;

/** The words of this transport's failures. */
final class Faults {
  private Faults() {}

  /** What to say of it to a peer. */
  static String words(TransportException cause) {
    String message = cause.getMessage();
    return message == null ? cause.reason().toString() : message;
  }

  static TransportException withdrawn() {
    return new TransportException(Reason.WITHDRAWN, "withdrawn before it was posted", null);
  }

  static TransportException closed(int rank) {
    return TransportException.closed(rank);
  }

  static TransportException peerClosed(int peer) {
    return TransportException.peerClosed(peer);
  }

  static TransportException allClosed() {
    return new TransportException(Reason.PEER_CLOSED, "every other rank closed", null);
  }

  static TransportException unreachable(int source, int target, @Nullable Throwable cause) {
    String why = cause == null ? "it is closed, read-only or another thread's" : cause.getMessage();
    return new TransportException(
        Reason.MEMORY,
        "the message from rank "
            + source
            + " to rank "
            + target
            + " could not be copied ("
            + why
            + "): keep the arena of a segment open until the operation has completed",
        cause);
  }

  static TransportException noMemory(int source, long bytes, Throwable cause) {
    return new TransportException(
        Reason.MEMORY,
        "no memory for the " + bytes + " bytes from rank " + source + ": " + cause.getMessage(),
        cause);
  }

  static TransportException mismatch(int source, int tag, long bytes, long expected) {
    return new TransportException(
        Reason.SIZE_MISMATCH,
        "the message from rank "
            + source
            + ", tag "
            + tag
            + " has "
            + bytes
            + " bytes, the receive has room for exactly "
            + expected
            + ": make both sides agree, or receive without segments to take any length",
        null);
  }

  static TransportException memory(String words) {
    return new TransportException(Reason.MEMORY, words, null);
  }

  /** A peer said what cannot be: another version, a broken library or memory, or a liar. */
  static TransportException impossible(int peer, String what) {
    return new TransportException(
        Reason.PEER_FAILED,
        "rank "
            + peer
            + " sent what cannot be: "
            + what
            + "; see that all ranks run the same version of Fairlead and of the message library",
        null);
  }

  /** What a peer says of why it cannot go on; names it if its words name nobody. */
  static TransportException said(int peer, String words) {
    String text = words.contains("rank ") ? words : "rank " + peer + " cannot go on: " + words;
    return new TransportException(Reason.PEER_FAILED, text, null);
  }

  static TransportException lost(int peer, Throwable cause) {
    String who = peer < 0 ? "a rank" : "rank " + peer;
    return new TransportException(
        Reason.PEER_FAILED, who + " cannot be reached any more: " + cause.getMessage(), cause);
  }
}
