package io.fairlead.task;

import java.util.Objects;

/**
 * Where a task would like to run. Closed on purpose: a placement that cannot be honoured is refused
 * with a message, never quietly replaced.
 *
 * <pre>
 *             | own carriers                          | the JDK's carriers
 * FREE        | parent's thread or any carrier        | the same
 * INITIAL     | the carrier that first ran it         | a platform thread of its own
 * Bound       | the owner's platform thread           | the same
 * Serial,     | any carrier; the turn is given up     | the turn is given up in Completion.await,
 * WITH_PARENT | wherever the task suspends            | join and waits for an owner or a gate; it is
 *             |                                       | kept in other waits: locks, sleep, sockets.
 *             |                                       | A lock that is held over one of ours must
 *             |                                       | not be wanted by others of the same turn
 * </pre>
 *
 * <p><b>Waiting for oneself.</b> A child that joins a scope of an ancestor, asks for the result of
 * an ancestor, or awaits the owner's call that it is part of, gets an error. A completion does not
 * know who will settle it, so a task that awaits one which only it, or whoever waits for it, would
 * settle is not found: give such waits a deadline.
 */
public sealed interface Placement
    permits Placement.Free,
        Placement.Initial,
        Placement.WithParent,
        Placement.Serial,
        Placement.Bound {

  /** Wherever there is room: a virtual thread. */
  Placement FREE = new Free();

  /**
   * On the OS thread on which it begins, whichever that is: for code that keeps state there. It
   * waits while that thread runs something else that does not suspend. On own carriers it shares
   * the thread with other tasks, between whose suspensions it runs; on the JDK's it has the thread
   * for itself.
   */
  Placement INITIAL = new Initial();

  /**
   * Never at the same time as its parent and the other children of this placement, wherever they
   * run; so they need no locks among each other between two suspensions. The turn is given up while
   * suspended (see the table), so a parent that joins lets them go on, and the turn comes in the
   * order in which they can go on. A parent that computes keeps it: nothing of the family begins
   * before it waits.
   *
   * <p>One thread has one turn. A parent that already runs in a strand or a family, or in place in
   * a thread that does, shares it with its children, instead of founding a family.
   *
   * <p>The parent must be a task: a thread that never entered, and a task on an owner's platform
   * thread, are refused. The call of an owner that runs the parent's own code is a suspension of
   * the parent. FREE children of a member that are stolen are not part of the family.
   */
  Placement WITH_PARENT = new WithParent();

  /** The one value is {@link #FREE}. */
  record Free() implements Placement {}

  /** The one value is {@link #INITIAL}. */
  record Initial() implements Placement {}

  /** The one value is {@link #WITH_PARENT}. */
  record WithParent() implements Placement {}

  /**
   * At most one of the group at a time, in the order in which they can go on; the first time, fork
   * order. May move from thread to thread as a whole. The turn is given up while suspended: see the
   * table.
   *
   * @param group whose runtime must be open; it may be used from scopes of any
   */
  record Serial(Strand group) implements Placement {
    public Serial {
      Objects.requireNonNull(group, "group");
    }
  }

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
