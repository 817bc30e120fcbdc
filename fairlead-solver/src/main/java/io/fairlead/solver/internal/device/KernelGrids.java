package io.fairlead.solver.internal.device;

import io.fairlead.device.spi.Grid;

/**
 * How the launches of {@link SolverKernels} are cut. What is one work item differs between the two
 * forms of the kernels; what a launch computes does not.
 *
 * <p>Stateless.
 */
sealed interface KernelGrids permits HostGrids, GpuGrids {
  /** A product with a sparse matrix that is stored in so many entries, padding too. */
  Grid rows(int rows, int entries);

  /** A product with this matrix. */
  default Grid rows(MatrixPart matrix) {
    return rows(matrix.rows(), matrix.entries());
  }

  /** A product with a sparse matrix that sums dot products of its rows, or dot products alone. */
  Grid chunks(int items);

  /** A product with a dense matrix. */
  Grid dense(int rows, int columns);

  /** One item of a vector after the other. */
  Grid items(int items);

  /** Items of a vector that are gathered. */
  Grid gathered(int items);

  /** The sum over chunks. */
  Grid sum();
}
