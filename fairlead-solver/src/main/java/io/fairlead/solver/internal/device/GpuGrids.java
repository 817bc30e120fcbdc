package io.fairlead.solver.internal.device;

import io.fairlead.device.spi.Grid;

/**
 * The grids of {@link CudaKernels}, whose work items are threads: one for each row of a sparse
 * matrix and each item of a vector; and as many as a sum has lanes for each chunk, for each row of
 * the dense matrix, and for the sum.
 */
final class GpuGrids implements KernelGrids {
  /** Lanes of a dot product: two items of a chunk for each, so that small solves are wide too. */
  static final int DOT_LANES = 512;

  /** Lanes of a row of the dense matrix, which has some hundreds of columns. */
  static final int DENSE_LANES = 128;

  private static final Grid ONE_BLOCK = blocks(1, DOT_LANES);

  private static Grid blocks(long blocks, int threads) {
    return Grid.of(blocks * threads).withBlock(threads);
  }

  @Override
  public Grid rows(int rows, int entries) {
    return Grid.of(rows);
  }

  @Override
  public Grid chunks(int items) {
    return blocks(SolverKernels.chunks(items), DOT_LANES);
  }

  @Override
  public Grid dense(int rows, int columns) {
    return blocks(rows, DENSE_LANES);
  }

  @Override
  public Grid items(int items) {
    return Grid.of(items);
  }

  @Override
  public Grid gathered(int items) {
    return Grid.of(items);
  }

  @Override
  public Grid sum() {
    return ONE_BLOCK;
  }
}
