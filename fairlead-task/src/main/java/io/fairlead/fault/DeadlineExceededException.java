package io.fairlead.fault;

import java.time.Duration;

/** Something was not done when its deadline came. It may still be going on. */
public final class DeadlineExceededException extends FairleadException {
  private final Duration deadline;

  public DeadlineExceededException(String what, Duration deadline) {
    super(Severity.OPERATION, what + " was not done after " + deadline, null);
    this.deadline = deadline;
  }

  /** How long was waited. */
  public Duration deadline() {
    return deadline;
  }
}
