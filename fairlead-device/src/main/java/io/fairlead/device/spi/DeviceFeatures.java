package io.fairlead.device.spi;

/**
 * What kernels and images can count on. The host device has none of it: {@link #NONE}.
 *
 * @param architecture CUDA's compute capability times ten: 90 is {@code sm_90}; 0 without one
 * @param cooperative whether {@link Grid#cooperative} is possible
 * @param clusters whether {@link Grid#withCluster} is possible
 * @param sharedBytesMax shared memory that one block can be given, in bytes
 * @param cacheBytes the second-level cache
 * @param copyEngines copies that can run beside kernels at the same time
 * @param busId where it is on the bus: {@code 0000:3b:00.0}; empty without a bus
 */
public record DeviceFeatures(
    int architecture,
    boolean cooperative,
    boolean clusters,
    int sharedBytesMax,
    long cacheBytes,
    int copyEngines,
    String busId) {
  /** A device that runs kernels in Java. */
  public static final DeviceFeatures NONE = new DeviceFeatures(0, false, false, 0, 0, 0, "");

  /** {@code sm_90}; {@code none} without an architecture. */
  public String architectureName() {
    return architecture == 0 ? "none" : "sm_" + architecture;
  }
}
