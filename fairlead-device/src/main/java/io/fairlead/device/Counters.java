package io.fairlead.device;

import java.util.concurrent.atomic.LongAdder;

/** The context's counters. Striped, since every task bumps them; read only for a snapshot. */
final class Counters {
  final LongAdder operations = new LongAdder();
  final LongAdder launches = new LongAdder();
  final LongAdder copies = new LongAdder();
  final LongAdder bytesUp = new LongAdder();
  final LongAdder bytesDown = new LongAdder();
  final LongAdder edges = new LongAdder();
  final LongAdder edgesElided = new LongAdder();
  final LongAdder events = new LongAdder();
  final LongAdder signals = new LongAdder();
  final LongAdder waits = new LongAdder();
  final LongAdder waitNanos = new LongAdder();
  final LongAdder streamsCreated = new LongAdder();
  final LongAdder leaks = new LongAdder();

  DeviceStats snapshot(long kernelNanos, int streams, long hostBytes) {
    return new DeviceStats(
        operations.sum(),
        launches.sum(),
        copies.sum(),
        bytesUp.sum(),
        bytesDown.sum(),
        edges.sum(),
        edgesElided.sum(),
        events.sum(),
        signals.sum(),
        waits.sum(),
        waitNanos.sum(),
        kernelNanos,
        streams,
        streamsCreated.sum(),
        hostBytes,
        leaks.sum());
  }
}
