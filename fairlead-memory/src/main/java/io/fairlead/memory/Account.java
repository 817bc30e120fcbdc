package io.fairlead.memory;

import io.fairlead.task.Task;
import io.fairlead.task.TaskAttachment;
import org.jspecify.annotations.Nullable;

/**
 * What one task holds of one device, and the reservation that its allocations draw on. A child
 * starts in the reservation that its parent is in when it forks.
 *
 * <p>{@code held} and {@code room} are guarded by the lock of the {@link Budget}.
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

  @Nullable Room room;

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
    if (openRoom() != null || held > 0) {
      return true;
    }
    for (Account account = reserves ? null : parent; account != null; account = account.parent) {
      if (account.held > 0) {
        return true;
      }
    }
    return false;
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
      return new Account(task.name(), task.id(), task.isRoot(), null);
    }

    @Override
    protected @Nullable Account fork(Task parent, @Nullable Account parentValue, Task child) {
      return parentValue == null
          ? null
          : budget.inherit(parentValue, parent.isRoot(), child.name(), child.id());
    }
  }
}
