package io.fairlead.solver;

/**
 * How a solve went.
 *
 * @param converged whether the residual, computed anew at the end, is within the tolerance
 * @param iterations steps taken
 * @param relativeResidual {@code |b − A x| / |b|}, computed anew at the end; 0 where b is zero
 * @param levels levels of the hierarchy; 1 without multigrid
 * @param convergenceFactor by how much an iteration shrank the residual, in the geometric mean; 0
 *     where none was needed
 * @param seconds where the time went
 * @param messages messages that all ranks sent
 * @param waits waits of rank 0 for its device
 */
public record SolveReport(
    boolean converged,
    int iterations,
    double relativeResidual,
    int levels,
    double convergenceFactor,
    Seconds seconds,
    long messages,
    long waits) {

  /**
   * Where the time of rank 0 went. The parts are measured apart from each other: kernels run while
   * the host waits or prepares more, so they overlap the rest.
   *
   * @param setup the setup of the solver, which all solves share
   * @param solve from the call to the solution
   * @param kernels time in which kernels ran on the devices of this process, other solves' of the
   *     same time included; -1 where the driver does not measure it
   * @param waits time spent waiting for the device
   * @param messages time spent waiting for messages
   * @param host the rest of the solve: preparing and enqueuing
   */
  public record Seconds(
      double setup, double solve, double kernels, double waits, double messages, double host) {}
}
