package io.fairlead.comm.spi;

/**
 * What a message is for. Messages of different traffic never match each other, so a flood of one
 * kind cannot be taken for, or stand in front of, another.
 */
public enum Traffic {
  /** What tasks send to each other. */
  DATA,
  /** What collectives are made of; the tag is the communicator's sequence number. */
  COLLECTIVE
}
