package io.fairlead.device.spi;

/**
 * Told by the driver that a stream moved on. Called on a device-management thread, without any
 * driver lock held; must not block, must not call the driver, and must not throw.
 */
public interface StreamListener {
  /** {@link Driver#reached} of this stream is now at least {@code value}. */
  void reached(long value);

  /** The stream's context is lost; {@link Driver#status} has the cause. */
  void lost();
}
