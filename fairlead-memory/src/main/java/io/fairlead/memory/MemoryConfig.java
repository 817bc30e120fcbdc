package io.fairlead.memory;

import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.function.Consumer;

/**
 * How one device's memory is handed out. Immutable; checked once, here.
 *
 * @param limitBytes most bytes that live buffers, pending frees and reservations may take together;
 *     {@link #WHOLE_DEVICE} for what the device has free when it is opened
 * @param waitNanos how long an allocation waits for others to give memory back before it fails
 * @param graceNanos how long it waits, of that, while the requesting task alone holds everything:
 *     only somebody to whom it handed a buffer could help it
 * @param chunkBytes size of one staged piece of a large copy
 * @param creationSites whether buffers remember where they were made and closed (about a
 *     microsecond each); error texts and leak reports name the places
 * @param leakListener told of buffers that nobody closed: of one that was dropped, on the device
 *     manager, and of those that were open when the device was closed, by whoever closes it; must
 *     not block
 */
public record MemoryConfig(
    long limitBytes,
    long waitNanos,
    long graceNanos,
    long chunkBytes,
    boolean creationSites,
    Consumer<List<Leak>> leakListener) {

  /** The limit that means: what the device has free when it is opened. */
  public static final long WHOLE_DEVICE = 0;

  /** Longer than any kernel a waiting task should have to sit out; short enough to be noticed. */
  static final long WAIT_DEFAULT = Duration.ofSeconds(10).toNanos();

  /** A consumer that was handed a buffer gets to run within this, also on a busy machine. */
  static final long GRACE_DEFAULT = Duration.ofSeconds(1).toNanos();

  /** 4 MiB reach the full speed of a PCIe link, and 64 of them fit the default block pool. */
  static final long CHUNK_DEFAULT = 4L << 20;

  public MemoryConfig {
    Objects.requireNonNull(leakListener, "leakListener");
    if (limitBytes < 0) {
      throw new IllegalArgumentException(
          "limitBytes is " + limitBytes + "; give a number of bytes, or 0 for the whole device");
    }
    if (waitNanos < 0 || graceNanos < 0) {
      throw new IllegalArgumentException(
          "waitNanos is "
              + waitNanos
              + " and graceNanos is "
              + graceNanos
              + "; 0 means not at all");
    }
    if (chunkBytes < 1) {
      throw new IllegalArgumentException("chunkBytes is " + chunkBytes + "; at least 1");
    }
  }

  /** The whole device, with the defaults above; leaks go to the system logger. */
  public static MemoryConfig defaults() {
    return new MemoryConfig(
        WHOLE_DEVICE, WAIT_DEFAULT, GRACE_DEFAULT, CHUNK_DEFAULT, true, Leak::log);
  }

  public MemoryConfig withLimit(long bytes) {
    return new MemoryConfig(bytes, waitNanos, graceNanos, chunkBytes, creationSites, leakListener);
  }

  public MemoryConfig withWait(Duration wait) {
    return new MemoryConfig(
        limitBytes, wait.toNanos(), graceNanos, chunkBytes, creationSites, leakListener);
  }

  public MemoryConfig withGrace(Duration grace) {
    return new MemoryConfig(
        limitBytes, waitNanos, grace.toNanos(), chunkBytes, creationSites, leakListener);
  }

  public MemoryConfig withChunk(long bytes) {
    return new MemoryConfig(limitBytes, waitNanos, graceNanos, bytes, creationSites, leakListener);
  }

  public MemoryConfig withLeakListener(Consumer<List<Leak>> listener) {
    return new MemoryConfig(limitBytes, waitNanos, graceNanos, chunkBytes, creationSites, listener);
  }
}
