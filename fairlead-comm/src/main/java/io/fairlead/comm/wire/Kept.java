package io.fairlead.comm.wire;

import org.jspecify.annotations.Nullable;

/**
 * A message that came before its receive.
 *
 * <pre>
 * WHOLE    its bytes are in a block of ours; the sender was told it is sent
 * OFFERED  its bytes are with the sender, who waits; for good, or for some polls
 * LANDING  its bytes are on their way to a block of ours; then WHOLE
 * FAULTY   it has no bytes: the sender could not read them, and knows
 * </pre>
 *
 * A receive that takes a message in LANDING leaves itself as {@code claimant}. Those that were
 * WHOLE are used again.
 */
final class Kept {
  enum State {
    WHOLE,
    OFFERED,
    LANDING,
    FAULTY
  }

  Peer peer;
  int channel;
  int kind;
  int tag;
  long bytes;
  long id;
  boolean staged;

  /** The bytes of credit to give back; negative: it was pulled and used none. */
  int credit;

  /** Which came first. */
  long order;

  /** OFFERED: after how many polls it may be taken without a receive. */
  long earlyAt;

  State state = State.OFFERED;
  Blocks.@Nullable Block block;
  @Nullable Waiting claimant;

  @Nullable Lane lane;
  @Nullable Kept previous;

  /** Of the lane, or of the list of unused ones. */
  @Nullable Kept next;

  @Nullable Lane anyLane;
  @Nullable Kept older;
  @Nullable Kept newer;

  Kept(Peer peer) {
    this.peer = peer;
  }
}
