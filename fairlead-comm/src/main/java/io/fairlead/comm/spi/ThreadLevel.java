package io.fairlead.comm.spi;

/**
 * Which threads may enter a transport, in the words of MPI. From the narrowest to the widest, so
 * that {@code compareTo} answers "is at least".
 */
public enum ThreadLevel {
  /** Only the thread that opened the transport, and no other thread exists that could. */
  SINGLE,
  /** Only the thread that opened the transport: the owner. */
  FUNNELED,
  /** Any thread, one at a time. */
  SERIALIZED,
  /** Any thread at any time. */
  MULTIPLE
}
