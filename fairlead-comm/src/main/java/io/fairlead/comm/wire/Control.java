package io.fairlead.comm.wire;

import org.jspecify.annotations.Nullable;

/** A packet without data that waits for room on its way to a peer. */
final class Control {
  final Kind kind;
  final int flags;
  final int channel;
  final int tag;
  final long bytes;
  final long id;
  final @Nullable String words;
  @Nullable Control next;

  Control(Kind kind, int flags, int channel, int tag, long bytes, long id, @Nullable String words) {
    this.kind = kind;
    this.flags = flags;
    this.channel = channel;
    this.tag = tag;
    this.bytes = bytes;
    this.id = id;
    this.words = words;
  }
}
