package io.fairlead.task;

import java.util.Locale;

/** How a task waits for a completion. */
public enum WaitMode {
  /** The task parks; whoever polls or is notified wakes it. No core and no carrier is used. */
  NONBLOCKING,
  /**
   * The calling OS thread blocks inside the engine (a stream synchronise, say) through {@link
   * WaitHelp#block}. A virtual thread blocks its carrier with it: meant for platform threads.
   */
  BLOCKING,
  /** The calling thread looks again and again; it yields now and then so that others get on. */
  SPIN;

  /**
   * The mode with this name, in any case.
   *
   * @throws IllegalArgumentException that lists the names there are
   */
  public static WaitMode of(String name) {
    for (WaitMode mode : values()) {
      if (mode.name().equalsIgnoreCase(name.strip())) {
        return mode;
      }
    }
    throw new IllegalArgumentException(
        "wait mode '" + name.toLowerCase(Locale.ROOT) + "': use nonblocking, blocking or spin");
  }
}
