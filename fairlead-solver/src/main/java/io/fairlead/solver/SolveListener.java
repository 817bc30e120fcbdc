package io.fairlead.solver;

/**
 * Hears how a setup or a solve is getting on. Called on the thread of the task that does the work,
 * which goes on only afterwards: so it should be quick. An exception from it ends the work.
 */
public interface SolveListener {
  /** Hears nothing. */
  SolveListener SILENT = new SolveListener() {};

  /**
   * A level of the hierarchy is on the device.
   *
   * @param level 0 is the matrix itself
   */
  default void level(int level, int rows, long entries) {}

  /**
   * An iteration has moved x.
   *
   * @param iteration from 1
   * @param relativeResidual {@code |b − A x| / |b|} by the recurrence; the last one is confirmed by
   *     computing it anew before a solve counts as converged
   */
  default void iteration(int iteration, double relativeResidual) {}
}
