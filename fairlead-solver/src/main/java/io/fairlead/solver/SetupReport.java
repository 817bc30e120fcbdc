package io.fairlead.solver;

import java.util.List;

/**
 * What the setup made.
 *
 * @param levels finest first; one without multigrid
 * @param operatorComplexity stored entries of all levels over those of the finest
 * @param residentBytes device memory that the solver holds until it is closed, all ranks together
 * @param solveBytes device memory that one solve takes in addition, all ranks together
 * @param seconds the time it took
 * @param hierarchySeconds the part of it that the CPU needed to build the hierarchy
 * @param kernels the form in which the devices have the kernels: {@code in Java}, {@code prebuilt
 *     machine code}
 */
public record SetupReport(
    List<LevelSize> levels,
    double operatorComplexity,
    long residentBytes,
    long solveBytes,
    double seconds,
    double hierarchySeconds,
    String kernels) {

  /** Copies the list. */
  public SetupReport {
    levels = List.copyOf(levels);
  }

  /** The size of one level. */
  public record LevelSize(int rows, long entries) {}
}
