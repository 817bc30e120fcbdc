package io.fairlead.memory;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Objects;
import java.util.function.LongSupplier;
import java.util.function.UnaryOperator;

/**
 * How the disk tier works. Immutable; checked once, here.
 *
 * @param directory where it makes a directory of its own
 * @param bytesMax most bytes that its files may take together
 * @param chunkBytes size of each piece of an image but the last, a multiple of the file system's
 *     unit; each has a checksum
 * @param threads that read and write; 0 where a test takes every step itself
 * @param backoffNanosMin how long nothing is tried after the first error; doubled for each further
 *     one until an image is published
 * @param backoffNanosMax the longest such time: no more than this, and the trial, passes after the
 *     disk works again
 * @param spareMin the smallest file that is worth keeping when its image is gone
 * @param spareBytesMax most bytes of such files; they count as long as nobody needs the room
 * @param roomAgain told, on a thread of the tier and under no lock, when there may be room after
 *     {@link DiskTier#begin} has answered that there is none; must not block
 * @param faults put between the tier and its files by tests
 * @param clock nanoseconds
 */
record DiskOptions(
    Path directory,
    long bytesMax,
    long chunkBytes,
    int threads,
    long backoffNanosMin,
    long backoffNanosMax,
    long spareMin,
    long spareBytesMax,
    Runnable roomAgain,
    UnaryOperator<DiskFiles> faults,
    LongSupplier clock) {

  /** One buffer of the system's interface cannot be longer than 2 GiB. */
  static final long CHUNK_MAX = 1L << 30;

  /** More only wait for each other: four keep a fast disk busy while others add up checksums. */
  static final int THREADS_MAX = 16;

  private static final int THREADS_DEFAULT = 4;
  private static final long BACKOFF_MIN = Duration.ofMillis(50).toNanos();

  /** With the trial, less than the second within which spilling is to go on again. */
  private static final long BACKOFF_MAX = Duration.ofMillis(800).toNanos();

  /** Below that, making and removing a file costs no more than writing it over. */
  private static final long SPARE_MIN = 1 << 20;

  /** A quarter of what is allowed, and what a disk writes in a second or so. */
  private static final long SPARE_SHARE = 4;

  private static final long SPARE_BYTES_MAX = 1L << 30;

  DiskOptions {
    Objects.requireNonNull(directory, "directory");
    Objects.requireNonNull(roomAgain, "roomAgain");
    if (bytesMax < 0) {
      throw new IllegalArgumentException(
          "bytesMax is " + bytesMax + "; give the bytes that may lie on the disk");
    }
    if (chunkBytes < DiskFormat.UNIT
        || chunkBytes > CHUNK_MAX
        || chunkBytes % DiskFormat.UNIT != 0) {
      throw new IllegalArgumentException(
          "chunkBytes is "
              + chunkBytes
              + "; give a multiple of "
              + DiskFormat.UNIT
              + " up to "
              + CHUNK_MAX);
    }
    if (threads < 0 || threads > THREADS_MAX) {
      throw new IllegalArgumentException(
          "threads is " + threads + "; give 1 to " + THREADS_MAX + ", or 0 to step");
    }
    if (backoffNanosMin < 1 || backoffNanosMax < backoffNanosMin) {
      throw new IllegalArgumentException(
          "backoff is " + backoffNanosMin + " to " + backoffNanosMax + " ns; at least 1, in order");
    }
    if (spareMin < 0 || spareBytesMax < 0 || spareBytesMax > bytesMax) {
      throw new IllegalArgumentException(
          "spare files from "
              + spareMin
              + " bytes on, "
              + spareBytesMax
              + " in all; give at most as many as may lie on the disk");
    }
  }

  static DiskOptions of(Path directory, long bytesMax, long chunkBytes) {
    return new DiskOptions(
        directory,
        bytesMax,
        chunkBytes,
        THREADS_DEFAULT,
        BACKOFF_MIN,
        BACKOFF_MAX,
        SPARE_MIN,
        Math.min(bytesMax / SPARE_SHARE, SPARE_BYTES_MAX),
        () -> {},
        UnaryOperator.identity(),
        System::nanoTime);
  }

  DiskOptions withRoomAgain(Runnable told) {
    return new DiskOptions(
        directory,
        bytesMax,
        chunkBytes,
        threads,
        backoffNanosMin,
        backoffNanosMax,
        spareMin,
        spareBytesMax,
        told,
        faults,
        clock);
  }

  DiskOptions withBackoff(Duration min, Duration max) {
    return new DiskOptions(
        directory,
        bytesMax,
        chunkBytes,
        threads,
        min.toNanos(),
        max.toNanos(),
        spareMin,
        spareBytesMax,
        roomAgain,
        faults,
        clock);
  }

  DiskOptions withSpares(long min, long bytes) {
    return new DiskOptions(
        directory,
        bytesMax,
        chunkBytes,
        threads,
        backoffNanosMin,
        backoffNanosMax,
        min,
        bytes,
        roomAgain,
        faults,
        clock);
  }

  DiskOptions withThreads(int count) {
    return new DiskOptions(
        directory,
        bytesMax,
        chunkBytes,
        count,
        backoffNanosMin,
        backoffNanosMax,
        spareMin,
        spareBytesMax,
        roomAgain,
        faults,
        clock);
  }

  DiskOptions withFaults(UnaryOperator<DiskFiles> between) {
    return new DiskOptions(
        directory,
        bytesMax,
        chunkBytes,
        threads,
        backoffNanosMin,
        backoffNanosMax,
        spareMin,
        spareBytesMax,
        roomAgain,
        between,
        clock);
  }

  DiskOptions withClock(LongSupplier nanos) {
    return new DiskOptions(
        directory,
        bytesMax,
        chunkBytes,
        threads,
        backoffNanosMin,
        backoffNanosMax,
        spareMin,
        spareBytesMax,
        roomAgain,
        faults,
        nanos);
  }
}
