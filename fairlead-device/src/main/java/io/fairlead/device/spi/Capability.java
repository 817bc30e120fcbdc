package io.fairlead.device.spi;

/** What a driver can do beyond the minimum. */
public enum Capability {
  /** Calls {@link StreamListener}; otherwise {@link Driver#reached} has to be polled. */
  NOTIFY,
  /** Runs kernels that are Java code. */
  JAVA_KERNELS,
  /** Operations end only when a test says so. */
  STEPPED,
  /**
   * Foreign code that names no stream enqueues on a default stream: {@link
   * Driver#defaultStreamWait} and {@link Driver#defaultStreamRecord} work. Without it such code
   * works on the calling thread, and has ended when it returns.
   */
  DEFAULT_STREAM,
  /** Copies from one device's memory to another's: {@link Driver#copyPeer}. */
  PEER_COPY,
  /** Writes work down once and launches it often: {@link Driver#graphs} answers. */
  GRAPHS
}
