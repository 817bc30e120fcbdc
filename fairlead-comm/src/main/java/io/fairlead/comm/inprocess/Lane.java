package io.fairlead.comm.inprocess;

import io.fairlead.comm.spi.Traffic;
import org.jspecify.annotations.Nullable;

/**
 * The two queues of one (traffic, source, tag): receives that wait, and messages that wait. At most
 * one of them is not empty, but for receives from any source. Guarded by the mailbox lock.
 */
final class Lane {
  Traffic traffic = Traffic.DATA;
  int source;
  int tag;

  @Nullable Posted firstPosted;
  @Nullable Posted lastPosted;
  @Nullable Envelope firstEnvelope;
  @Nullable Envelope lastEnvelope;

  /** Next lane of the same bucket, or of the list of unused lanes. */
  @Nullable Lane next;

  boolean isEmpty() {
    return firstPosted == null && firstEnvelope == null;
  }

  boolean is(Traffic otherTraffic, int otherSource, int otherTag) {
    return tag == otherTag && source == otherSource && traffic == otherTraffic;
  }

  void add(Posted posted) {
    posted.lane = this;
    posted.previous = lastPosted;
    if (lastPosted == null) {
      firstPosted = posted;
    } else {
      lastPosted.next = posted;
    }
    lastPosted = posted;
  }

  void remove(Posted posted) {
    Posted before = posted.previous;
    Posted after = posted.next;
    if (before == null) {
      firstPosted = after;
    } else {
      before.next = after;
    }
    if (after == null) {
      lastPosted = before;
    } else {
      after.previous = before;
    }
    posted.lane = null;
    posted.previous = null;
    posted.next = null;
  }

  void add(Envelope envelope) {
    envelope.lane = this;
    envelope.previous = lastEnvelope;
    if (lastEnvelope == null) {
      firstEnvelope = envelope;
    } else {
      lastEnvelope.next = envelope;
    }
    lastEnvelope = envelope;
  }

  void remove(Envelope envelope) {
    Envelope before = envelope.previous;
    Envelope after = envelope.next;
    if (before == null) {
      firstEnvelope = after;
    } else {
      before.next = after;
    }
    if (after == null) {
      lastEnvelope = before;
    } else {
      after.previous = before;
    }
    envelope.lane = null;
    envelope.previous = null;
    envelope.next = null;
  }
}
