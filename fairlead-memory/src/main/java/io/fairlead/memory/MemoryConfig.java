package io.fairlead.memory;

import io.fairlead.device.ByteSize;
import java.nio.file.Path;
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
 * @param wrapping what stands around the pool: failures on purpose, a log
 * @param spill where buffers go that others have no room for
 */
public record MemoryConfig(
    long limitBytes,
    long waitNanos,
    long graceNanos,
    long chunkBytes,
    CreationSites creationSites,
    Consumer<List<Leak>> leakListener,
    MemoryPool pool,
    long cachedBytesMax,
    PoolWrapping wrapping,
    SpillConfig spill) {

  /** The limit that means: what the device has free when it is opened. */
  public static final long WHOLE_DEVICE = 0;

  /** The bytes to keep that mean: a quarter of the limit. */
  public static final long QUARTER = -1;

  /** Names the pool: {@code fairlead}, {@code driver}, {@code arena}. */
  public static final String POOL_PROPERTY = "fairlead.memory.pool";

  /** Whether buffers remember who made them: {@code sampled}, {@code all}, {@code none}. */
  public static final String SITES_PROPERTY = "fairlead.memory.sites";

  /** Which allocations fail on purpose; see {@link MemoryFailures#parse}. */
  public static final String FAIL_PROPERTY = "fairlead.memory.fail";

  /** What the pool writes to the log: {@code off}, {@code summary}, {@code all}. */
  public static final String LOG_PROPERTY = "fairlead.memory.log";

  /** Whether buffers are spilled: {@code on}, {@code off}. */
  public static final String SPILL_PROPERTY = "fairlead.memory.spill";

  /** Most pinned host memory for them, as {@link ByteSize} reads it. */
  public static final String SPILL_HOST_PROPERTY = "fairlead.memory.spill.host";

  /** The directory where to go on when that is full. */
  public static final String SPILL_DIRECTORY_PROPERTY = "fairlead.memory.spill.directory";

  /** Most bytes to take there, as for the host. */
  public static final String SPILL_DISK_PROPERTY = "fairlead.memory.spill.disk";

  /** Which of the requests that spilling makes fail on purpose; see {@link SpillConfig}. */
  public static final String SPILL_FAIL_PROPERTY = "fairlead.memory.spill.fail";

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
    Objects.requireNonNull(wrapping, "wrapping");
    Objects.requireNonNull(spill, "spill");
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
        QUARTER,
        PoolWrapping.NONE,
        SpillConfig.TO_HOST);
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
        .withCreationSites(choice(properties, SITES_PROPERTY, defaults.creationSites()))
        .withFailures(failures(properties, FAIL_PROPERTY))
        .withPoolLog(choice(properties, LOG_PROPERTY, defaults.wrapping().log()))
        .withSpill(spill(properties));
  }

  private static MemoryFailures failures(Properties properties, String name) {
    String text = properties.getProperty(name);
    if (text == null) {
      return MemoryFailures.NONE;
    }
    try {
      return MemoryFailures.parse(text);
    } catch (IllegalArgumentException e) {
      throw new IllegalArgumentException("property " + name + ": " + e.getMessage(), e);
    }
  }

  private static SpillConfig spill(Properties properties) {
    SpillConfig spill =
        SpillConfig.TO_HOST
            .withHostBytesMax(bytes(properties, SPILL_HOST_PROPERTY, SpillConfig.QUARTER))
            .withFailures(failures(properties, SPILL_FAIL_PROPERTY));
    String directory = properties.getProperty(SPILL_DIRECTORY_PROPERTY);
    if (directory != null) {
      spill =
          spill.withDisk(
              Path.of(directory.strip()),
              bytes(properties, SPILL_DISK_PROPERTY, SpillConfig.DISK_DEFAULT));
    } else if (properties.getProperty(SPILL_DISK_PROPERTY) != null) {
      throw new IllegalArgumentException(
          "property " + SPILL_DISK_PROPERTY + " needs " + SPILL_DIRECTORY_PROPERTY + " beside it");
    }
    return choice(properties, SPILL_PROPERTY, Switch.ON) == Switch.ON ? spill : SpillConfig.OFF;
  }

  private enum Switch {
    ON,
    OFF
  }

  private static long bytes(Properties properties, String name, long usual) {
    String text = properties.getProperty(name);
    if (text == null) {
      return usual;
    }
    try {
      return Math.min(ByteSize.parseOrNone(text), Sizes.MAX);
    } catch (IllegalArgumentException malformed) {
      throw new IllegalArgumentException(
          "property " + name + ": " + malformed.getMessage(), malformed);
    }
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
    return with(draft -> draft.limitBytes = bytes);
  }

  public MemoryConfig withWait(Duration wait) {
    return with(draft -> draft.waitNanos = wait.toNanos());
  }

  public MemoryConfig withGrace(Duration grace) {
    return with(draft -> draft.graceNanos = grace.toNanos());
  }

  public MemoryConfig withChunk(long bytes) {
    return with(draft -> draft.chunkBytes = bytes);
  }

  public MemoryConfig withCreationSites(CreationSites kept) {
    return with(draft -> draft.creationSites = kept);
  }

  public MemoryConfig withLeakListener(Consumer<List<Leak>> listener) {
    return with(draft -> draft.leakListener = listener);
  }

  public MemoryConfig withPool(MemoryPool taken) {
    return with(draft -> draft.pool = taken);
  }

  public MemoryConfig withCachedBytesMax(long bytes) {
    return with(draft -> draft.cachedBytesMax = bytes);
  }

  public MemoryConfig withSpill(SpillConfig where) {
    return with(draft -> draft.spill = where);
  }

  public MemoryConfig withWrapping(PoolWrapping around) {
    return with(draft -> draft.wrapping = around);
  }

  public MemoryConfig withFailures(MemoryFailures failures) {
    return withWrapping(new PoolWrapping(failures, wrapping.log()));
  }

  public MemoryConfig withPoolLog(PoolLog log) {
    return withWrapping(new PoolWrapping(wrapping.failures(), log));
  }

  /** Most bytes to keep of a limit. */
  long cachedBytesMax(long limit) {
    return cachedBytesMax == QUARTER ? limit / 4 : Math.min(cachedBytesMax, limit);
  }

  private MemoryConfig with(Consumer<Draft> change) {
    Draft draft = new Draft(this);
    change.accept(draft);
    return draft.finished();
  }

  /** A copy on its way to another configuration. */
  private static final class Draft {
    long limitBytes;
    long waitNanos;
    long graceNanos;
    long chunkBytes;
    CreationSites creationSites;
    Consumer<List<Leak>> leakListener;
    MemoryPool pool;
    long cachedBytesMax;
    PoolWrapping wrapping;
    SpillConfig spill;

    Draft(MemoryConfig from) {
      limitBytes = from.limitBytes;
      waitNanos = from.waitNanos;
      graceNanos = from.graceNanos;
      chunkBytes = from.chunkBytes;
      creationSites = from.creationSites;
      leakListener = from.leakListener;
      pool = from.pool;
      cachedBytesMax = from.cachedBytesMax;
      wrapping = from.wrapping;
      spill = from.spill;
    }

    MemoryConfig finished() {
      return new MemoryConfig(
          limitBytes,
          waitNanos,
          graceNanos,
          chunkBytes,
          creationSites,
          leakListener,
          pool,
          cachedBytesMax,
          wrapping,
          spill);
    }
  }
}
