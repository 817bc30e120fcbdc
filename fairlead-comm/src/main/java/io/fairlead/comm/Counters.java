package io.fairlead.comm;

import java.util.concurrent.atomic.LongAdder;

/** The counters behind {@link CommStats}; each is written by any thread and read by a snapshot. */
final class Counters {
  final LongAdder sent = new LongAdder();
  final LongAdder received = new LongAdder();
  final LongAdder bytesSent = new LongAdder();
  final LongAdder bytesReceived = new LongAdder();
  final LongAdder collectives = new LongAdder();
  final LongAdder waitNanos = new LongAdder();
  final LongAdder shifted = new LongAdder();
  final LongAdder refused = new LongAdder();
  final LongAdder discarded = new LongAdder();
  final LongAdder undelivered = new LongAdder();
  final LongAdder submitted = new LongAdder();
  final LongAdder handled = new LongAdder();

  void sent(long bytes) {
    sent.increment();
    bytesSent.add(bytes);
  }

  void received(long bytes) {
    received.increment();
    bytesReceived.add(bytes);
  }

  CommStats snapshot() {
    return new CommStats(
        sent.sum(),
        received.sum(),
        bytesSent.sum(),
        bytesReceived.sum(),
        collectives.sum(),
        waitNanos.sum(),
        shifted.sum(),
        refused.sum(),
        discarded.sum(),
        undelivered.sum(),
        submitted.sum(),
        handled.sum());
  }
}
