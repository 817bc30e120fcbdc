package io.fairlead.solver;

import io.fairlead.fault.FairleadException;
import io.fairlead.fault.Severity;

/**
 * The matrix has a direction along which its energy is not positive, so conjugate gradients have no
 * meaning for it. Found while the coarsest level is factored, or later by the iteration itself.
 */
public final class NotPositiveDefiniteException extends FairleadException {
  private static final long serialVersionUID = 1L;

  /** The iteration of what was found during the setup. */
  public static final int IN_SETUP = 0;

  private final int iteration;
  private final double value;

  /** Found by the setup; the message says where, and what to do. */
  public NotPositiveDefiniteException(String message) {
    this(message, IN_SETUP, Double.NaN);
  }

  /**
   * Found by the iteration.
   *
   * @param iteration where, from 1
   * @param value the product that should have been positive
   */
  public NotPositiveDefiniteException(String message, int iteration, double value) {
    super(Severity.OPERATION, message, null);
    this.iteration = iteration;
    this.value = value;
  }

  /** Returns the iteration that found it, from 1, or {@link #IN_SETUP}. */
  public int iteration() {
    return iteration;
  }

  /** Returns the product that should have been positive; NaN if the setup found it. */
  public double value() {
    return value;
  }
}
