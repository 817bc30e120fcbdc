package io.fairlead.memory;

import java.nio.file.Path;
import java.util.Objects;
import java.util.Optional;

/**
 * Where buffers go for which the device has no room. Immutable; checked once, here.
 *
 * @param hostBytesMax most pinned host memory to take for that; {@link #QUARTER} for a quarter of
 *     the machine's memory; 0 for none, and then nothing is spilled
 * @param directory where to go on when that is full; empty for nowhere
 * @param diskBytesMax most bytes to take there
 * @param failures which requests for pinned memory, and which calls that write or read files, go
 *     wrong on purpose, for tests of programs: each kind is counted by itself. Nothing is lost by
 *     that: memory is refused, the disk is full for a while, a call takes a part of what it was
 *     given, or breaks off
 */
public record SpillConfig(
    long hostBytesMax, Optional<Path> directory, long diskBytesMax, MemoryFailures failures) {
  /** The host memory that means: a quarter of the machine's. */
  public static final long QUARTER = -1;

  /** Nothing leaves the device: whoever finds no room waits for others to close buffers. */
  public static final SpillConfig OFF =
      new SpillConfig(0, Optional.empty(), 0, MemoryFailures.NONE);

  /** To host memory, up to a quarter of the machine's; no disk. */
  public static final SpillConfig TO_HOST =
      new SpillConfig(QUARTER, Optional.empty(), 0, MemoryFailures.NONE);

  /** What a directory is allowed that nobody gave a limit for. */
  static final long DISK_DEFAULT = 64L << 30;

  public SpillConfig {
    Objects.requireNonNull(failures, "failures");
    if (hostBytesMax < QUARTER) {
      throw new IllegalArgumentException(
          "hostBytesMax is "
              + hostBytesMax
              + "; give a number of bytes, 0 to spill nothing, or QUARTER");
    }
    if (diskBytesMax < 0 || (directory.isEmpty() && diskBytesMax > 0)) {
      throw new IllegalArgumentException(
          "diskBytesMax is " + diskBytesMax + "; give a number of bytes, and a directory for them");
    }
  }

  public SpillConfig withHostBytesMax(long bytes) {
    return new SpillConfig(bytes, directory, diskBytesMax, failures);
  }

  /** Goes on to disk when the host memory is full. */
  public SpillConfig withDisk(Path toDirectory, long bytesMax) {
    return new SpillConfig(hostBytesMax, Optional.of(toDirectory), bytesMax, failures);
  }

  public SpillConfig withFailures(MemoryFailures onPurpose) {
    return new SpillConfig(hostBytesMax, directory, diskBytesMax, onPurpose);
  }

  boolean isOn() {
    return hostBytesMax != 0;
  }
}
