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
 * @param eager FREE only: begins on a thread of its own at once. Else the fork costs next to
 *     nothing and the child begins when the parent joins, when the parent waits, or as soon as a
 *     processor has nothing to do. For children that block outside of Fairlead while the parent
 *     computes
 */
public record ForkOptions(
    @Nullable String name,
    @Nullable Integer priority,
    Placement placement,
    @Nullable WaitMode waitMode,
    boolean eager) {

  /** No name, the parent's priority, FREE, the scope's wait mode, not eager. */
  public static final ForkOptions DEFAULT =
      new ForkOptions(null, null, Placement.FREE, null, false);

  public ForkOptions {
    Objects.requireNonNull(placement, "placement");
  }

  /** The default with this name. */
  public static ForkOptions named(String name) {
    return DEFAULT.name(name);
  }

  /** A copy with this name. */
  public ForkOptions name(String value) {
    return new ForkOptions(value, priority, placement, waitMode, eager);
  }

  /** A copy with this priority. */
  public ForkOptions priority(int value) {
    return new ForkOptions(name, value, placement, waitMode, eager);
  }

  /** A copy with this placement. */
  public ForkOptions placement(Placement value) {
    return new ForkOptions(name, priority, value, waitMode, eager);
  }

  /** A copy that waits this way. */
  public ForkOptions waitMode(WaitMode value) {
    return new ForkOptions(name, priority, placement, value, eager);
  }

  /** A copy that begins on a thread of its own at once, or not. */
  public ForkOptions eager(boolean value) {
    return new ForkOptions(name, priority, placement, waitMode, value);
  }
}
