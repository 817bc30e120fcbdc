package io.fairlead.task;

import java.util.Objects;
import java.util.Properties;

/**
 * The settings of a {@link TaskRuntime}.
 *
 * @param waitMode how tasks wait unless they say otherwise ({@code fairlead.sync})
 * @param ownerQueue commands an owner's queue holds; a power of two
 * @param idleSpins rounds in which an idle owner only spins before it yields (about 40 ns each)
 * @param idleYields rounds in which it then yields before it parks
 * @param pollParkNanosMax longest sleep between two polls while a source has something pending:
 *     what a completion that nobody announces may be late by
 */
public record TaskConfig(
    WaitMode waitMode, int ownerQueue, int idleSpins, int idleYields, long pollParkNanosMax) {

  /**
   * NONBLOCKING; 1,024 commands (a few dozen threads, each with a burst); 250 spins (about 10 µs,
   * the cost of a park and unpark); 50 yields; 200 µs.
   */
  public static final TaskConfig DEFAULT =
      new TaskConfig(WaitMode.NONBLOCKING, 1024, 250, 50, 200_000);

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

  /**
   * The default, with what the properties say: {@code fairlead.sync}.
   *
   * @throws IllegalArgumentException that names the property and what it may be
   */
  public static TaskConfig from(Properties properties) {
    String sync = properties.getProperty("fairlead.sync");
    if (sync == null) {
      return DEFAULT;
    }
    try {
      return DEFAULT.waitMode(WaitMode.of(sync));
    } catch (IllegalArgumentException e) {
      throw new IllegalArgumentException("property fairlead.sync: " + e.getMessage(), e);
    }
  }

  /** A copy with this wait mode. */
  public TaskConfig waitMode(WaitMode value) {
    return new TaskConfig(value, ownerQueue, idleSpins, idleYields, pollParkNanosMax);
  }

  /** A copy with this queue length. */
  public TaskConfig ownerQueue(int value) {
    return new TaskConfig(waitMode, value, idleSpins, idleYields, pollParkNanosMax);
  }

  /** A copy that polls at least this often while something is pending. */
  public TaskConfig pollParkNanosMax(long value) {
    return new TaskConfig(waitMode, ownerQueue, idleSpins, idleYields, value);
  }
}
