package io.fairlead.memory;

/** What a device's memory pool tells the system logger, at level INFO. */
public enum PoolLog {
  /** Nothing. */
  OFF,

  /** How it was used, when the device closes and with each {@link Device#trim}. */
  SUMMARY,

  /** That, and every request, refusal and return. */
  ALL
}
