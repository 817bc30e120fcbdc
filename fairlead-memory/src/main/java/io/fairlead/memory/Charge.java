package io.fairlead.memory;

import org.jspecify.annotations.Nullable;

/** Bytes that one buffer takes, and where they were taken from. Given back exactly once. */
final class Charge {
  final long bytes;
  final @Nullable Room room;
  final Account account;

  /** Whether its buffer was closed. Under the budget's lock. */
  boolean closing;

  Charge(long bytes, @Nullable Room room, Account account) {
    this.bytes = bytes;
    this.room = room;
    this.account = account;
  }

  /**
   * A part of a charge that is closing; together with its other parts it takes the place of this
   * one, and no sum of the budget changes.
   */
  Charge part(long partBytes) {
    Charge part = new Charge(partBytes, room, account);
    part.closing = true; // plain: nobody else knows it yet
    return part;
  }
}
