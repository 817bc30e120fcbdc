package io.fairlead.comm.wire;

import io.fairlead.comm.spi.TransportException;
import io.fairlead.comm.spi.TransportException.Reason;
import org.jspecify.annotations.Nullable;

/** How an operation ended, as a number on the wire: 0 for well, else a reason and one. */
final class Answers {
  static final int WELL = 0;

  /** The asker had it withdrawn, and so nothing comes. */
  static final int WITHDRAWN = 1000;

  private Answers() {}

  static int of(Reason reason) {
    return switch (reason) {
      case SIZE_MISMATCH -> 1;
      case CLOSED -> 2;
      case PEER_CLOSED -> 3;
      case PEER_FAILED -> 4;
      case MEMORY -> 5;
      case GATE -> 6;
      case WITHDRAWN -> 7;
      case BACK_PRESSURE -> 8;
      case LIBRARY -> 9;
      case INCOMPLETE -> 10;
    };
  }

  private static @Nullable Reason reason(int number) {
    for (Reason reason : Reason.values()) {
      if (of(reason) == number) {
        return reason;
      }
    }
    return null;
  }

  static boolean isKnown(int number) {
    return number == WELL || number == WITHDRAWN || reason(number) != null;
  }

  /** Of a known number but {@link #WITHDRAWN}. Null: it went well. */
  static @Nullable TransportException failure(int peer, int number, String words) {
    Reason reason = reason(number);
    if (reason == Reason.PEER_FAILED) {
      return Faults.said(peer, words);
    }
    return reason == null ? null : new TransportException(reason, words, null);
  }
}
