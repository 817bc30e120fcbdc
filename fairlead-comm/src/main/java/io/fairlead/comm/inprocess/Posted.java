package io.fairlead.comm.inprocess;

import io.fairlead.comm.spi.ReceiveRequest;
import org.jspecify.annotations.Nullable;

/**
 * A receive that waits in a lane.
 *
 * <pre>
 * ENDED  → QUEUED  it waits                          under the mailbox lock
 * ENDED  → TAKEN   a message waited for it           under the mailbox lock
 * QUEUED → TAKEN   a message was matched to it       under the mailbox lock
 * QUEUED → ENDED   withdrawn, or the channel closed  under the mailbox lock
 * TAKEN  → ENDED   its segments are written no more  by the thread that copies, no lock
 * </pre>
 *
 * <p>All other fields are guarded by the mailbox lock.
 */
final class Posted {
  static final int QUEUED = 0;
  static final int TAKEN = 1;
  static final int ENDED = 2;

  final ReceiveRequest request;

  /** Of two receives that could take a message, the one with the lower order does. */
  final long order;

  /** Volatile: who withdraws a receive must see the last byte written before ENDED. */
  volatile int state = ENDED;

  @Nullable Lane lane;
  @Nullable Posted previous;
  @Nullable Posted next;

  Posted(ReceiveRequest request, long order) {
    this.request = request;
    this.order = order;
  }
}
