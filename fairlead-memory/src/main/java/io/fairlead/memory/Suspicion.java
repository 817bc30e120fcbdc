package io.fairlead.memory;

/**
 * Since when it looks as if a wait was hopeless. Used by one look of the {@link Ladder} at a time.
 */
final class Suspicion {
  /** 0 while it does not. Volatile: reports read it, too. */
  volatile long since;

  /** How often the budget had changed then. */
  private long changes;

  /** It looks so now; anew if somebody got or gave back something since the last time. */
  void note(long now, long changesNow) {
    if (since == 0 || changes != changesNow) {
      since = now;
      changes = changesNow;
    }
  }

  boolean lasts(long now, long nanos) {
    return since != 0 && now - since >= nanos;
  }

  void end() {
    since = 0;
  }
}
