package io.fairlead.task;

import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * How one child is made.
 *
 * @param name for messages and thread dumps; null: "task-" and its id
 * @param priority higher is more urgent; null: the parent's. A hint: JDK carriers do not look at it
 * @param placement where it runs
 * @param waitMode how it waits; null: as its scope says
 */
public record ForkOptions(
    @Nullable String name,
    @Nullable Integer priority,
    Placement placement,
    @Nullable WaitMode waitMode) {

  /** No name, the parent's priority, FREE, the scope's wait mode. */
  public static final ForkOptions DEFAULT = new ForkOptions(null, null, Placement.FREE, null);

  public ForkOptions {
    Objects.requireNonNull(placement, "placement");
  }

  /** The default with this name. */
  public static ForkOptions named(String name) {
    return DEFAULT.name(name);
  }

  /** A copy with this name. */
  public ForkOptions name(String value) {
    return new ForkOptions(value, priority, placement, waitMode);
  }

  /** A copy with this priority. */
  public ForkOptions priority(int value) {
    return new ForkOptions(name, value, placement, waitMode);
  }

  /** A copy with this placement. */
  public ForkOptions placement(Placement value) {
    return new ForkOptions(name, priority, value, waitMode);
  }

  /** A copy that waits this way. */
  public ForkOptions waitMode(WaitMode value) {
    return new ForkOptions(name, priority, placement, value);
  }
}
