package io.fairlead.device.spi;

/**
 * What a device is.
 *
 * @param memoryBytes the device's memory in bytes
 * @param workers processors that run kernels: worker threads of the host device, multiprocessors of
 *     a GPU
 * @param streamsWithSignals how many streams may have a signal outstanding at once that arrives by
 *     itself; for those of more the driver has to be asked. {@link Integer#MAX_VALUE} where there
 *     is no such limit
 * @param features what a GPU is besides
 */
public record DeviceInfo(
    int ordinal,
    String name,
    long memoryBytes,
    int workers,
    int streamsWithSignals,
    DeviceFeatures features) {
  /** A device without features. */
  public DeviceInfo(
      int ordinal, String name, long memoryBytes, int workers, int streamsWithSignals) {
    this(ordinal, name, memoryBytes, workers, streamsWithSignals, DeviceFeatures.NONE);
  }
}
