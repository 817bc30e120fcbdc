package io.fairlead.comm.wire;

import org.jspecify.annotations.Nullable;

/** The active messages of one peer on one channel that nobody has accepted or refused. */
final class Flow {
  final Channel channel;
  final Peer peer;
  private @Nullable WireArrival first;
  private @Nullable WireArrival last;

  /** The peer holds more of them back, and sends one for each pull. */
  boolean held;

  /** Pulls that were not answered yet. */
  int pulled;

  Flow(Channel channel, Peer peer) {
    this.channel = channel;
    this.peer = peer;
  }

  boolean isEmpty() {
    return first == null;
  }

  void add(WireArrival added) {
    added.previous = last;
    if (last == null) {
      first = added;
    } else {
      last.next = added;
    }
    last = added;
  }

  void remove(WireArrival removed) {
    if (removed.previous == null) {
      first = removed.next;
    } else {
      removed.previous.next = removed.next;
    }
    if (removed.next == null) {
      last = removed.previous;
    } else {
      removed.next.previous = removed.previous;
    }
    removed.previous = null;
    removed.next = null;
  }

  @Nullable WireArrival find(long id) {
    WireArrival arrival = first;
    while (arrival != null && arrival.id() != id) {
      arrival = arrival.next;
    }
    return arrival;
  }
}
