package io.fairlead.fault;

import org.jspecify.annotations.Nullable;

/**
 * The waiting task, or the completion that it waited for, was cancelled. The cause says why, where
 * a reason was given.
 */
public final class TaskCancelledException extends FairleadException {

  public TaskCancelledException(@Nullable Throwable cause) {
    this(cause == null ? "cancelled" : "cancelled because of: " + cause, cause);
  }

  public TaskCancelledException(String message, @Nullable Throwable cause) {
    super(Severity.TASK, message, cause);
  }
}
