package io.fairlead.solver;

/** What speeds up the conjugate gradients. */
public enum Preconditioner {
  /**
   * One V-cycle of smoothed-aggregation multigrid: iterations hardly grow with the size of the
   * problem. Needs the matrix.
   */
  AMG,
  /** Division by the diagonal. Needs the matrix's diagonal. */
  JACOBI,
  /** None. */
  NONE
}
