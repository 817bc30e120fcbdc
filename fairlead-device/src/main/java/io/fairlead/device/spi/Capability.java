package io.fairlead.device.spi;

/** What a driver can do beyond the minimum. */
public enum Capability {
  /** Calls {@link StreamListener}; otherwise {@link Driver#reached} has to be polled. */
  NOTIFY,
  /** Runs kernels that are Java code. */
  JAVA_KERNELS,
  /** Operations end only when a test says so. */
  STEPPED
}
