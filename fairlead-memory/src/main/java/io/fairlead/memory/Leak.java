package io.fairlead.memory;

import java.util.List;

/**
 * A buffer that was never closed.
 *
 * @param device ordinal of the device it was on
 * @param bytes its size
 * @param task name of the task that allocated it
 * @param site the place in the program that allocated it
 */
public record Leak(int device, long bytes, String task, String site) {
  private static final System.Logger LOGGER = System.getLogger("io.fairlead.memory");

  /** A leak in a loop repeats itself; this many show where. */
  private static final int SHOWN_MAX = 16;

  /** Writes the leaks to the system logger, as one warning. */
  public static void log(List<Leak> leaks) {
    LOGGER.log(System.Logger.Level.WARNING, () -> text(leaks));
  }

  private static String text(List<Leak> leaks) {
    long bytes = leaks.stream().mapToLong(Leak::bytes).sum();
    StringBuilder text = new StringBuilder(256);
    text.append(leaks.size())
        .append(leaks.size() == 1 ? " device buffer of " : " device buffers of together ")
        .append(Sizes.text(bytes))
        .append(" never closed. Allocate in try-with-resources, or close where the last user ends");
    leaks.stream().limit(SHOWN_MAX).forEach(leak -> text.append("\n  ").append(leak));
    if (leaks.size() > SHOWN_MAX) {
      text.append("\n  and ").append(leaks.size() - SHOWN_MAX).append(" more");
    }
    return text.toString();
  }

  @Override
  public String toString() {
    return Sizes.text(bytes)
        + " on device "
        + device
        + ", allocated by task '"
        + task
        + "' at "
        + site;
  }
}
