package io.fairlead.memory;

/** Whether buffers remember the places that made and closed them, for reports and error texts. */
public enum CreationSites {
  /** None does. */
  NONE,

  /**
   * Each does, as long as fewer than some thousands are made in a second; of more, some. So a leak
   * that repeats itself is found, and what is made in a hurry does not pay for all the others.
   */
  SAMPLED,

  /** Each does; a microsecond or two at both ends. */
  ALL
}
