package io.fairlead.device;

/**
 * The limits of one device context. Immutable and validated once.
 *
 * @param streamsMax streams in the pool that tasks draw from; more tasks than that share them
 * @param unfinishedMax operations of one stream that may be unfinished before the enqueuing task
 *     parks
 * @param hostBytesMax page-locked host memory that the block pool may hold
 * @param heartbeatNanos how often a polled context is asked whether it is still sound
 * @param closeNanos how long {@link DeviceContext#close} waits for work that does not end
 */
public record DeviceConfig(
    int streamsMax, int unfinishedMax, long hostBytesMax, long heartbeatNanos, long closeNanos) {

  /** The most hardware queues that a GPU can be told to have; more streams would share them. */
  public static final int STREAMS_MAX = 32;

  /** Half of what a launch queue was seen to take (1,022) before a launch blocks its caller. */
  public static final int UNFINISHED_MAX = 512;

  /** 64 staging blocks of 4 MiB, the size from which copies reach the link's full rate. */
  public static final long HOST_BYTES_MAX = 256L << 20;

  /** A fault must reach all waiters within milliseconds. */
  public static final long HEARTBEAT_NANOS = 1_000_000;

  /** Longer than any sound kernel, short enough that nobody kills the process first. */
  public static final long CLOSE_NANOS = 10_000_000_000L;

  /** The smallest limit that leaves room for one periodic signal and checkpoint. */
  private static final int UNFINISHED_MIN = 4;

  public DeviceConfig {
    requireRange("streamsMax", streamsMax, 1, 1024);
    requireRange("unfinishedMax", unfinishedMax, UNFINISHED_MIN, 1 << 16);
    requireRange("hostBytesMax", hostBytesMax, 0, Long.MAX_VALUE);
    requireRange("heartbeatNanos", heartbeatNanos, 1, Long.MAX_VALUE);
    requireRange("closeNanos", closeNanos, 0, Long.MAX_VALUE);
  }

  public static DeviceConfig defaults() {
    return new DeviceConfig(
        STREAMS_MAX, UNFINISHED_MAX, HOST_BYTES_MAX, HEARTBEAT_NANOS, CLOSE_NANOS);
  }

  public DeviceConfig withStreamsMax(int value) {
    return new DeviceConfig(value, unfinishedMax, hostBytesMax, heartbeatNanos, closeNanos);
  }

  public DeviceConfig withUnfinishedMax(int value) {
    return new DeviceConfig(streamsMax, value, hostBytesMax, heartbeatNanos, closeNanos);
  }

  public DeviceConfig withHostBytesMax(long value) {
    return new DeviceConfig(streamsMax, unfinishedMax, value, heartbeatNanos, closeNanos);
  }

  public DeviceConfig withCloseNanos(long value) {
    return new DeviceConfig(streamsMax, unfinishedMax, hostBytesMax, heartbeatNanos, value);
  }

  private static void requireRange(String name, long value, long min, long max) {
    if (value < min || value > max) {
      throw new IllegalArgumentException(
          name + " must be between " + min + " and " + max + ", not " + value);
    }
  }
}
