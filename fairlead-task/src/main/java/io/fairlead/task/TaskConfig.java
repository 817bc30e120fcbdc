package io.fairlead.task;

import java.util.Objects;
import java.util.Properties;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;

/**
 * The settings of a {@link TaskRuntime}.
 *
 * @param waitMode how tasks wait unless they say otherwise ({@code fairlead.sync})
 * @param ownerQueue commands an owner's queue holds; a power of two
 * @param idleSpins rounds in which an idle owner spins before it yields at each (about 40 ns each;
 *     it yields at every fiftieth)
 * @param idleYields rounds in which it then yields before it parks
 * @param pollParkNanosMax longest sleep between two polls while a source has something pending:
 *     what a completion that nobody announces may be late by, if it was long in coming (a sleep is
 *     at most a fiftieth of the time that nothing was found)
 * @param carriers whose threads run tasks ({@code fairlead.carriers}); null: own ones where the JDK
 *     lets us, else the JDK's
 */
public record TaskConfig(
    WaitMode waitMode,
    int ownerQueue,
    int idleSpins,
    int idleYields,
    long pollParkNanosMax,
    @Nullable CarrierMode carriers) {

  private static final String SYNC_PROPERTY = "fairlead.sync";
  private static final String CARRIERS_PROPERTY = "fairlead.carriers";

  /**
   * NONBLOCKING; 1,024 commands (a few dozen threads, each with a burst); 250 spins (about 10 µs,
   * the cost of a park and unpark); 50 yields; 10 ms (reached after 500 ms; a nap costs 13 to 20 µs
   * of a processor, so naps of 1 ms cost up to a fiftieth of one, and these a five-hundredth); own
   * carriers if they can be had.
   */
  public static final TaskConfig DEFAULT =
      new TaskConfig(WaitMode.NONBLOCKING, 1024, 250, 50, 10_000_000, null);

  public TaskConfig {
    Objects.requireNonNull(waitMode, "waitMode");
    if (ownerQueue < 2 || Integer.bitCount(ownerQueue) != 1) {
      throw new IllegalArgumentException(
          "ownerQueue " + ownerQueue + ": a power of two, 2 or more");
    }
    if (idleSpins < 0 || idleYields < 0) {
      throw new IllegalArgumentException("idleSpins and idleYields must not be negative");
    }
    if (pollParkNanosMax < 1_000) {
      throw new IllegalArgumentException(
          "pollParkNanosMax " + pollParkNanosMax + ": at least 1,000, less would only spin");
    }
  }

  /** As the other constructor, with own carriers if they can be had. */
  public TaskConfig(
      WaitMode waitMode, int ownerQueue, int idleSpins, int idleYields, long pollParkNanosMax) {
    this(waitMode, ownerQueue, idleSpins, idleYields, pollParkNanosMax, null);
  }

  /**
   * The default, with what the properties say: {@code fairlead.sync}, {@code fairlead.carriers}.
   *
   * @throws IllegalArgumentException that names the property and what it may be
   */
  public static TaskConfig from(Properties properties) {
    TaskConfig config = DEFAULT;
    String sync = properties.getProperty(SYNC_PROPERTY);
    if (sync != null) {
      config = config.waitMode(parsed(SYNC_PROPERTY, sync, WaitMode::of));
    }
    String carriers = properties.getProperty(CARRIERS_PROPERTY);
    if (carriers != null && !carriers.strip().equalsIgnoreCase("auto")) {
      config = config.carriers(parsed(CARRIERS_PROPERTY, carriers, CarrierMode::of));
    }
    return config;
  }

  private static <T> T parsed(String property, String text, Function<String, T> parser) {
    try {
      return parser.apply(text);
    } catch (IllegalArgumentException e) {
      throw new IllegalArgumentException("property " + property + ": " + e.getMessage(), e);
    }
  }

  /** A copy with this wait mode. */
  public TaskConfig waitMode(WaitMode value) {
    return new TaskConfig(value, ownerQueue, idleSpins, idleYields, pollParkNanosMax, carriers);
  }

  /** A copy with this queue length. */
  public TaskConfig ownerQueue(int value) {
    return new TaskConfig(waitMode, value, idleSpins, idleYields, pollParkNanosMax, carriers);
  }

  /** A copy that polls at least this often while something is pending. */
  public TaskConfig pollParkNanosMax(long value) {
    return new TaskConfig(waitMode, ownerQueue, idleSpins, idleYields, value, carriers);
  }

  /** A copy whose tasks run on these carriers, or, with null, on own ones if they can be had. */
  public TaskConfig carriers(@Nullable CarrierMode value) {
    return new TaskConfig(waitMode, ownerQueue, idleSpins, idleYields, pollParkNanosMax, value);
  }
}
