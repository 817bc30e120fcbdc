package io.fairlead.task;

import java.util.Objects;

/**
 * Where a task would like to run. Closed on purpose: a placement that cannot be honoured is refused
 * with a message, never quietly replaced.
 */
public sealed interface Placement permits Placement.Free, Placement.Bound {

  /** Wherever there is room: a virtual thread. */
  Placement FREE = new Free();

  /** The one value is {@link #FREE}. */
  record Free() implements Placement {}

  /**
   * On the owner's platform thread, from the first to the last instruction of the body, as one
   * command in the owner's queue. While the body runs the owner serves nothing else, except that it
   * goes on polling its sources when the body waits for a completion. So: short bodies, or an owner
   * of its own.
   */
  record Bound(Owner owner) implements Placement {
    public Bound {
      Objects.requireNonNull(owner, "owner");
    }
  }
}
