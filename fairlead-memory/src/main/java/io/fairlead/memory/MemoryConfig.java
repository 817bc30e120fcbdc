package io.fairlead.memory;

import java.time.Duration;
import java.util.List;
import java.util.Locale;
import java.util.Objects;
import java.util.Properties;
import java.util.function.Consumer;
import java.util.stream.Collectors;

/**
 * How one device's memory is handed out. Immutable; checked once, here.
 *
 * @param limitBytes most bytes that live buffers, pending frees and reservations may take together;
 *     {@link #WHOLE_DEVICE} for what the device has free when it is opened
 * @param waitNanos how long an allocation waits for others to give memory back before it fails
 * @param graceNanos how long it waits, of that, while the requesting task alone holds everything:
 *     only somebody to whom it handed a buffer could help it
 * @param chunkBytes size of one staged piece of a large copy
 * @param creationSites whether buffers remember where they were made and closed; error texts and
 *     leak reports name the places
 * @param leakListener told of buffers that nobody closed: of one that was dropped, on the device
 *     manager, and of those that were open when the device was closed, by whoever closes it; must
 *     not block
 * @param pool whose memory it is that buffers get
 * @param cachedBytesMax most bytes that Fairlead's pool keeps while nobody uses them, within the
 *     limit; {@link #QUARTER} for a quarter of the limit
 */
public record MemoryConfig(
    long limitBytes,
    long waitNanos,
    long graceNanos,
    long chunkBytes,
    CreationSites creationSites,
    Consumer<List<Leak>> leakListener,
    MemoryPool pool,
    long cachedBytesMax) {

  /** The limit that means: what the device has free when it is opened. */
  public static final long WHOLE_DEVICE = 0;

  /** The bytes to keep that mean: a quarter of the limit. */
  public static final long QUARTER = -1;

  /** Names the pool: {@code fairlead}, {@code driver}. */
  public static final String POOL_PROPERTY = "fairlead.memory.pool";

  /** Whether buffers remember who made them: {@code sampled}, {@code all}, {@code none}. */
  public static final String SITES_PROPERTY = "fairlead.memory.sites";

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
    Objects.requireNonNull(creationSites, "creationSites");
    Objects.requireNonNull(pool, "pool");
    if (cachedBytesMax < QUARTER) {
      throw new IllegalArgumentException(
          "cachedBytesMax is "
              + cachedBytesMax
              + "; give a number of bytes, 0 to keep none, or QUARTER");
    }
    if (chunkBytes < 1) {
      throw new IllegalArgumentException("chunkBytes is " + chunkBytes + "; at least 1");
    }
  }

  /** The whole device, with the defaults above; leaks go to the system logger. */
  public static MemoryConfig defaults() {
    return new MemoryConfig(
        WHOLE_DEVICE,
        WAIT_DEFAULT,
        GRACE_DEFAULT,
        CHUNK_DEFAULT,
        CreationSites.SAMPLED,
        Leak::log,
        MemoryPool.FAIRLEAD,
        QUARTER);
  }

  /**
   * The defaults, changed by the properties above.
   *
   * @throws IllegalArgumentException naming the property, its value, and what it may be
   */
  public static MemoryConfig from(Properties properties) {
    MemoryConfig defaults = defaults();
    return defaults
        .withPool(choice(properties, POOL_PROPERTY, defaults.pool()))
        .withCreationSites(choice(properties, SITES_PROPERTY, defaults.creationSites()));
  }

  private static <E extends Enum<E>> E choice(Properties properties, String name, E usual) {
    String text = properties.getProperty(name);
    if (text == null) {
      return usual;
    }
    List<E> choices = List.of(usual.getDeclaringClass().getEnumConstants());
    for (E each : choices) {
      if (each.name().equalsIgnoreCase(text.strip())) {
        return each;
      }
    }
    throw new IllegalArgumentException(
        "property "
            + name
            + " is '"
            + text
            + "'; it must be "
            + choices.stream()
                .map(each -> each.name().toLowerCase(Locale.ROOT))
                .collect(Collectors.joining(" or ")));
  }

  public MemoryConfig withLimit(long bytes) {
    return new MemoryConfig(
        bytes,
        waitNanos,
        graceNanos,
        chunkBytes,
        creationSites,
        leakListener,
        pool,
        cachedBytesMax);
  }

  public MemoryConfig withWait(Duration wait) {
    return new MemoryConfig(
        limitBytes,
        wait.toNanos(),
        graceNanos,
        chunkBytes,
        creationSites,
        leakListener,
        pool,
        cachedBytesMax);
  }

  public MemoryConfig withGrace(Duration grace) {
    return new MemoryConfig(
        limitBytes,
        waitNanos,
        grace.toNanos(),
        chunkBytes,
        creationSites,
        leakListener,
        pool,
        cachedBytesMax);
  }

  public MemoryConfig withChunk(long bytes) {
    return new MemoryConfig(
        limitBytes,
        waitNanos,
        graceNanos,
        bytes,
        creationSites,
        leakListener,
        pool,
        cachedBytesMax);
  }

  public MemoryConfig withCreationSites(CreationSites kept) {
    return new MemoryConfig(
        limitBytes, waitNanos, graceNanos, chunkBytes, kept, leakListener, pool, cachedBytesMax);
  }

  public MemoryConfig withLeakListener(Consumer<List<Leak>> listener) {
    return new MemoryConfig(
        limitBytes,
        waitNanos,
        graceNanos,
        chunkBytes,
        creationSites,
        listener,
        pool,
        cachedBytesMax);
  }

  public MemoryConfig withPool(MemoryPool taken) {
    return new MemoryConfig(
        limitBytes,
        waitNanos,
        graceNanos,
        chunkBytes,
        creationSites,
        leakListener,
        taken,
        cachedBytesMax);
  }

  public MemoryConfig withCachedBytesMax(long bytes) {
    return new MemoryConfig(
        limitBytes, waitNanos, graceNanos, chunkBytes, creationSites, leakListener, pool, bytes);
  }

  /** Most bytes to keep of a limit. */
  long cachedBytesMax(long limit) {
    return cachedBytesMax == QUARTER ? limit / 4 : Math.min(cachedBytesMax, limit);
  }
}
