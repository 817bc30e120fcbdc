package io.fairlead.solver;

import io.fairlead.fault.FairleadException;
import io.fairlead.fault.Severity;

/**
 * A matrix that a setup makes has more entries than an array holds, which is about 2^31. The
 * message says which one, and what would help.
 */
public final class MatrixTooLargeException extends FairleadException {
  private static final long serialVersionUID = 1L;

  /** Makes the exception. */
  public MatrixTooLargeException(String message) {
    super(Severity.OPERATION, message, null);
  }
}
