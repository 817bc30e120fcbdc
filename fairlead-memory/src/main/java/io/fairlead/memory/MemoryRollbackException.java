package io.fairlead.memory;

import io.fairlead.fault.FairleadException;
import io.fairlead.fault.Severity;

/**
 * Unwinds the body of {@link Oom#retry} or {@link Oom#splitAndRetry}, which gives its memory back
 * and is run again when there is room. Let it pass: {@code finally} and {@code try} with resources
 * clean up as for any other failure. A body that catches it and goes on is run again all the same,
 * and its result is dropped.
 */
public final class MemoryRollbackException extends FairleadException {
  private static final long serialVersionUID = 1;

  MemoryRollbackException(Verdict why) {
    super(Severity.OPERATION, "rolled back to give memory to others: " + why.why(), why);
  }
}
