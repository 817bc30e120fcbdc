package io.fairlead.fault;

/**
 * The task was interrupted while it waited, or before. The interrupt status is set again when this
 * is thrown, so that callers further up see it too.
 */
public final class TaskInterruptedException extends FairleadException {

  public TaskInterruptedException(String message) {
    super(Severity.TASK, message, null);
  }
}
