package io.fairlead.solver.internal.device;

/** The scalar recurrences of conjugate gradients, the same on the device and on the host. */
final class Recurrence {
  private Recurrence() {}

  static double alpha(double rz, double pq) {
    return rz / pq;
  }

  /**
   * {@code |r − α q|²} before the vector exists: it costs no reduction of its own. Rounding is
   * relative to the larger of the old and the new square, and the next step starts from the square
   * of the vector itself, so errors do not add up.
   */
  static double nextSquare(double rr, double alpha, double rq, double qq) {
    return Math.max(0.0, rr - 2.0 * alpha * rq + alpha * alpha * qq);
  }
}
