package io.fairlead.solver;

/**
 * A solution, and how it was reached.
 *
 * @param x the solution: the caller's own array
 * @param report how it was reached; {@link SolveReport#converged()} says whether to trust it
 */
@SuppressWarnings("ArrayRecordComponent")
public record Solution(double[] x, SolveReport report) {}
