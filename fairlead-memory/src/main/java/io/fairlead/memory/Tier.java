package io.fairlead.memory;

/** Where the bytes of a buffer can be read. */
public enum Tier {
  /** On the device, whether or not there is a copy below. */
  DEVICE,
  /** In pinned host memory only. */
  HOST,
  /** On disk only. */
  DISK
}
