package io.fairlead.comm;

import java.lang.foreign.MemorySegment;
import java.util.List;

/** What a rank does with the active messages of one handler id. */
@FunctionalInterface
public interface MessageHandler {

  /**
   * Takes one message. Runs on the rank's communication thread, one message at a time, in the order
   * in which each source sent. Must not block: waiting for a completion is refused there; fork,
   * complete a source, or send on instead. The segments belong to the handler and stay valid.
   *
   * <p>What it throws fails the whole communicator, on every rank, with that cause.
   */
  void handle(int source, MemorySegment header, List<MemorySegment> blobs);
}
