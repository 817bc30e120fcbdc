package io.fairlead.task;

import java.time.Duration;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * How one child is made.
 *
 * @param name for messages and thread dumps; null: "task-" and its id
 * @param priority higher is more urgent; null: the parent's. A hint for whoever has to choose; no
 *     carrier orders what is ready by it
 * @param placement where it runs
 * @param waitMode how it waits; null: as its scope says
 * @param eager FREE only: begins on a thread of its own at once. Else the fork costs next to
 *     nothing and the child begins when the parent joins, when the parent waits, or as soon as a
 *     processor has nothing to do. For children that block outside of Fairlead while the parent
 *     computes
 * @param deadline from the fork on: when it has passed, the child is cancelled, and its failure is
 *     a {@link io.fairlead.fault.DeadlineExceededException}; null for none
 */
public record ForkOptions(
    @Nullable String name,
    @Nullable Integer priority,
    Placement placement,
    @Nullable WaitMode waitMode,
    boolean eager,
    @Nullable Duration deadline) {

  /** No name, the parent's priority, FREE, the scope's wait mode, not eager, no deadline. */
  public static final ForkOptions DEFAULT =
      new ForkOptions(null, null, Placement.FREE, null, false, null);

  public ForkOptions {
    Objects.requireNonNull(placement, "placement");
    if (deadline != null && (deadline.isNegative() || deadline.isZero())) {
      throw new IllegalArgumentException(
          "a fork's deadline " + deadline + " has passed before it began");
    }
  }

  /** The default with this name. */
  public static ForkOptions named(String name) {
    return DEFAULT.name(name);
  }

  /** A copy with this name. */
  public ForkOptions name(String value) {
    return new ForkOptions(value, priority, placement, waitMode, eager, deadline);
  }

  /** A copy with this priority. */
  public ForkOptions priority(int value) {
    return new ForkOptions(name, value, placement, waitMode, eager, deadline);
  }

  /** A copy with this placement. */
  public ForkOptions placement(Placement value) {
    return new ForkOptions(name, priority, value, waitMode, eager, deadline);
  }

  /** A copy that waits this way. */
  public ForkOptions waitMode(WaitMode value) {
    return new ForkOptions(name, priority, placement, value, eager, deadline);
  }

  /** A copy that begins on a thread of its own at once, or not. */
  public ForkOptions eager(boolean value) {
    return new ForkOptions(name, priority, placement, waitMode, value, deadline);
  }

  /** A copy with this deadline. */
  public ForkOptions deadline(Duration value) {
    return new ForkOptions(name, priority, placement, waitMode, eager, value);
  }
}
