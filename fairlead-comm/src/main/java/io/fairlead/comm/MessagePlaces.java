package io.fairlead.comm;

import java.lang.foreign.MemorySegment;

/** Chooses where the blobs of active messages go, once the header is here. */
@FunctionalInterface
public interface MessagePlaces {

  /**
   * Chooses for one message. Runs on the rank's communication thread, once all messages before it
   * have been handled, so the places of the last message may be given again. Must not block.
   *
   * <p>What it throws, and places that do not fit, fail the whole communicator, on every rank.
   *
   * @param header belongs to the caller; the handler gets the same
   * @param lengths of the blobs, in bytes; at least one
   * @return a place for each blob, of its length, not read-only and not confined; they are the
   *     engine's until the handler gets them. Native memory is written by the message library
   *     itself
   */
  MemorySegment[] choose(int source, MemorySegment header, long[] lengths);
}
