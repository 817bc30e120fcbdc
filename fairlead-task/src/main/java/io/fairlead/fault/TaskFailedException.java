package io.fairlead.fault;

import org.jspecify.annotations.Nullable;

/**
 * Carries the failure of somebody else's code to where it is waited for, when that failure cannot
 * be thrown as it is: a checked exception of a task body, or a foreign cause of a completion.
 */
public final class TaskFailedException extends FairleadException {

  public TaskFailedException(String message, @Nullable Throwable cause) {
    super(Severity.TASK, message, cause);
  }
}
