package io.fairlead.solver;

/**
 * The matrix has a direction along which its energy is not positive, so conjugate gradients have no
 * meaning for it. Found while the coarsest level is factored, or later by the iteration itself.
 */
public final class NotPositiveDefiniteException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  /** Makes the exception; the message says where it was seen and what to do. */
  public NotPositiveDefiniteException(String message) {
    super(message);
  }
}
