package io.fairlead.memory;

import io.fairlead.task.Task;
import io.fairlead.task.TaskAttachment;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import org.jspecify.annotations.Nullable;

/**
 * What one task holds of one device, and the reservation that its allocations draw on. A child
 * starts in the reservation that its parent is in when it forks.
 *
 * <p>{@code held}, {@code below} and {@code room} are guarded by the lock of the {@link Budget}.
 */
final class Account {
  final String task;
  final long taskId;

  /** Whether it is the root task's: any number of threads share it. */
  final boolean shared;

  /** Null for the root task, which is shared and so says nothing about who waits for whom. */
  final @Nullable Account parent;

  /** Bytes of live buffers; frees under way are not counted, since nobody has to act on them. */
  long held;

  /** Bytes of live buffers that left the device for others. */
  long below;

  @Nullable Room room;

  /** Its requests that stand in a {@link Line}. Under the budget's lock. */
  int waits;

  /** Leases, holds and operations for which it keeps buffers of anybody's on the device. */
  final AtomicInteger keeps = new AtomicInteger();

  /** Null for the root task, and in tests of the budget alone; set before anybody sees it. */
  @Nullable Task owner;

  /**
   * The innermost try that the task, or its parent as it was forked, is in. Written by the task's
   * own thread; volatile: read by who looks for deadlocks.
   */
  volatile @Nullable Try attempt;

  /** Of which device it is; null in tests of the budget alone, set before anybody sees it. */
  @Nullable Budget budget;

  /**
   * Whether the task, or a parent, is inside of a call of a {@link Spillable}: it frees more than
   * it asks for, and never waits. Own thread, before it asks for anything.
   */
  boolean gives;

  /** The numbers of storages that are the task's to give, up to the end. Own thread. */
  long nextStorageId;

  long storageIdsEnd;

  /** A drill that the task has asked for. Own thread. */
  @Nullable Drill drill;

  /** Of a task that is not the root task. */
  Account(String task, long taskId, @Nullable Account parent) {
    this(task, taskId, false, parent);
  }

  private Account(String task, long taskId, boolean shared, @Nullable Account parent) {
    this.task = task;
    this.taskId = taskId;
    this.shared = shared;
    this.parent = parent;
  }

  /** The innermost reservation that is still open. Under the budget's lock. */
  @Nullable Room openRoom() {
    while (room != null && !room.open) {
      room = room.outer;
    }
    return room;
  }

  /**
   * Whether this task goes on with work that already took memory: then letting it finish frees more
   * than letting somebody new begin. For a buffer, a parent that waits for this task counts too; a
   * reservation begins work of its own, whatever the parent holds.
   */
  boolean continues(boolean reserves) {
    if (gives || openRoom() != null || holds()) {
      return true;
    }
    for (Account account = reserves ? null : parent; account != null; account = account.parent) {
      if (account.holds()) {
        return true;
      }
    }
    return false;
  }

  /** Whether it has memory itself, or has reserved some. Under the budget's lock. */
  boolean hasItsOwn() {
    Room promised = openRoom();
    return holds() || (promised != null && promised.keeper.account() == this);
  }

  /**
   * Whether this is the other one, or waits for nothing less than it: a child's, or its child's.
   */
  boolean isBelow(Account other) {
    for (Account account = this; account != null; account = account.parent) {
      if (account == other) {
        return true;
      }
    }
    return false;
  }

  /** Whether this is so of one of them. */
  boolean isBelowAny(Set<Account> others) {
    for (Account account = this; account != null; account = account.parent) {
      if (others.contains(account)) {
        return true;
      }
    }
    return false;
  }

  /** Whether it, or a parent, has or keeps something. Under the budget's lock. */
  boolean keepsAny() {
    for (Account account = this; account != null; account = account.parent) {
      if (account.holds() || account.keeps.get() > 0 || account.openRoom() != null) {
        return true;
      }
    }
    return false;
  }

  private boolean holds() {
    return held > 0 || below > 0;
  }

  /** Finds a task's account. */
  static final class Key extends TaskAttachment<Account> {
    private final Budget budget;

    Key(Budget budget) {
      this.budget = budget;
    }

    /** Drops what the root task holds: the root outlives the device. */
    void forget() {
      forgetRoot();
    }

    @Override
    protected Account initial(Task task) {
      Account made = new Account(task.name(), task.id(), task.isRoot(), null);
      made.owner = task.isRoot() ? null : task;
      made.budget = budget;
      return made;
    }

    @Override
    protected @Nullable Account fork(Task parent, @Nullable Account parentValue, Task child) {
      if (parentValue == null) {
        return null;
      }
      Account made = budget.inherit(parentValue, parent.isRoot(), child.name(), child.id());
      made.owner = child;
      made.gives = parentValue.gives;
      made.budget = budget;
      made.attempt = parent.isRoot() ? null : parentValue.attempt;
      return made;
    }
  }
}
