package io.fairlead.memory;

import org.jspecify.annotations.Nullable;

/**
 * Lets one allocation of a task meet what it would meet without memory, so that the way back of a
 * body can be tested: its {@code n}-th from now on. See {@link Oom#drill}.
 *
 * <p>Threads: the task's own. Not blocking.
 */
public final class Drill implements AutoCloseable {

  /** What the allocation meets. */
  public enum Kind {
    /** A rollback: the try is run again. Outside of a try, as FAIL. */
    ROLL_BACK,
    /** A rollback for want of room for it alone: the try is split. Outside of a try, as FAIL. */
    SPLIT,
    /** The failure: an {@link io.fairlead.device.OutOfDeviceMemoryException}. */
    FAIL
  }

  private final Account account;
  private final @Nullable Drill before;
  private final Kind kind;
  private int left;

  Drill(Account account, int allocation, Kind kind) {
    this.account = account;
    this.before = account.drill;
    this.left = allocation;
    this.kind = kind;
  }

  /** What the coming allocation meets; null if it goes on. */
  @Nullable Verdict next(@Nullable Try attempt) {
    if (left == 0 || --left > 0) {
      return null;
    }
    Verdict.Kind meets =
        attempt == null || kind == Kind.FAIL
            ? Verdict.Kind.FAIL
            : kind == Kind.SPLIT ? Verdict.Kind.SPLIT : Verdict.Kind.ROLL_BACK;
    Verdict verdict = new Verdict(meets, 0, 0, 0, "this is a drill", "");
    if (attempt != null && meets != Verdict.Kind.FAIL) {
      attempt.rollBack(verdict);
    }
    return verdict;
  }

  /** Whether the allocation has come. */
  public boolean isOver() {
    return left == 0;
  }

  /** Ends it, whether or not the allocation has come. */
  @Override
  public void close() {
    account.drill = before;
    left = 0;
  }
}
