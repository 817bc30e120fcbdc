package io.fairlead.solver;

import io.fairlead.fault.FairleadException;
import io.fairlead.fault.Severity;

/**
 * The matrix has a direction along which its energy is not positive, so conjugate gradients have no
 * meaning for it. Found while the coarsest level is factored, or later by the iteration itself.
 */
public final class NotPositiveDefiniteException extends FairleadException {
  private static final long serialVersionUID = 1L;

  /** Makes the exception; the message says where it was seen and what to do. */
  public NotPositiveDefiniteException(String message) {
    super(Severity.OPERATION, message, null);
  }
}
