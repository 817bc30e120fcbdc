package io.fairlead.comm.inprocess;

import io.fairlead.comm.spi.SendRequest;
import io.fairlead.comm.spi.Traffic;
import org.jspecify.annotations.Nullable;

/**
 * A message that came before its receive.
 *
 * <pre>
 * COPYING → READY      the sender's thread filled the block      under the mailbox lock
 * COPYING → ENDED      the mailbox closed, or the copy failed    under the mailbox lock
 * READY   → ENDED      a receive took the block, or closed       under the mailbox lock
 * STALLED → TAKEN      a receive copies from the sender's blobs  under the mailbox lock
 * STALLED → ENDED      withdrawn or closed                       under the mailbox lock
 * TAKEN   → ENDED      the blobs are read no more                by the thread that copies, no lock
 * </pre>
 *
 * <p>A receive that matches a message in COPYING leaves itself as {@code claimant}; the sender's
 * thread then ends both. All fields but {@code state} are guarded by the mailbox lock; after READY
 * or TAKEN was left they belong to the thread that took the message.
 */
final class Envelope {
  static final int COPYING = 0;
  static final int READY = 1;
  static final int STALLED = 2;
  static final int TAKEN = 3;
  static final int ENDED = 4;

  final Traffic traffic;
  final int source;
  final int tag;
  final long bytes;

  /** Volatile: who withdraws a send must know that its blobs were read before ENDED. */
  volatile int state;

  /** Null once READY: the sender was told, its memory is its own. */
  @Nullable SendRequest send;

  EagerPool.@Nullable Block block;
  @Nullable Posted claimant;

  @Nullable Lane lane;
  @Nullable Envelope previous;
  @Nullable Envelope next;

  /** The mailbox's list of all messages in the order in which they came. */
  @Nullable Envelope older;

  @Nullable Envelope newer;

  Envelope(SendRequest send, int source, EagerPool.@Nullable Block block, int state) {
    this.traffic = send.traffic();
    this.source = source;
    this.tag = send.tag();
    this.bytes = send.bytes();
    this.send = send;
    this.block = block;
    this.state = state;
  }
}
