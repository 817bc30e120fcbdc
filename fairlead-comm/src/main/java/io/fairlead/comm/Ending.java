package io.fairlead.comm;

/**
 * An operation that the transport has ended, and whose owner has not been told yet. It remembers by
 * itself how it ended, so that telling it later costs no object.
 */
interface Ending {

  /** Tells it. Outside the transport, under no lock: what is told runs user code. Once. */
  void tell();

  /**
   * Whether telling it wakes somebody or calls him back; else whoever wants it comes and looks. A
   * hint, by who has the turn.
   */
  default boolean isAwaited() {
    return true;
  }
}
