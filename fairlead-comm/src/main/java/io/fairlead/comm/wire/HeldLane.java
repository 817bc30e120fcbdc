package io.fairlead.comm.wire;

import java.util.ArrayDeque;
import java.util.Deque;

/**
 * What one rank holds back of one channel, class and tag to one peer, in order. Exists as long as
 * something is held.
 */
final class HeldLane {
  /** Class: {@link Frame#COLLECTIVE}, {@link Frame#MESSAGE} or 0. */
  record Key(int channel, int kind, int tag) {

    /** Active messages are one lane, whatever their handlers. */
    static Key of(Op op) {
      return new Key(op.channel, op.kind, op.kind == Frame.MESSAGE ? 0 : op.tag);
    }
  }

  final Key key;
  final Deque<Op> ops = new ArrayDeque<>();

  /** The peer was told, and will pull. */
  boolean announced;

  HeldLane(Key key) {
    this.key = key;
  }
}
