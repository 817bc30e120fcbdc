package io.fairlead.comm;

/**
 * An operation that the transport has ended, and whose owner has not been told yet. It remembers by
 * itself how it ended, so that telling it later costs no object.
 */
interface Ending {

  /** Tells it. Outside the transport, under no lock: what is told runs user code. Once. */
  void tell();
}
