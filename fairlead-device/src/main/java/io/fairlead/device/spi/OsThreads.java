package io.fairlead.device.spi;

/**
 * Tells operating-system threads apart, which Java cannot: a virtual thread's own identity says
 * nothing about the carrier under it. Found with {@link java.util.ServiceLoader}; the module with
 * native access provides it. Without one, the host device keeps contexts per Java thread and says
 * so.
 */
public interface OsThreads {
  /** A number that no other live OS thread has. Any thread; a few nanoseconds; never blocks. */
  long current();
}
