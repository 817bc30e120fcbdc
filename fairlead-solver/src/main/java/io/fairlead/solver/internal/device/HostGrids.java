package io.fairlead.solver.internal.device;

import io.fairlead.device.spi.Grid;

/**
 * The grids of {@link JavaKernels}, whose work items are blocks of rows of a sparse matrix, chunks,
 * rows of the dense matrix and items of a vector; the sum is one item.
 */
final class HostGrids implements KernelGrids {
  /** About six microseconds of work: several times what it costs to hand a piece to a worker. */
  private static final int ENTRIES_PER_PIECE = 8192;

  /** Entries of the dense matrix that are worth a worker. */
  private static final int DENSE_ENTRIES_PER_PIECE = 16_384;

  /** Items worth a second worker when they are gathered. */
  private static final int GATHERED_PER_PIECE = 4096;

  private static final int CHUNKS_PER_PIECE = 2;
  private static final Grid ONE_ITEM = Grid.of(1);

  @Override
  public Grid rows(int rows, int entries) {
    int blocks = SlicedRows.blocks(rows);
    return Grid.of(blocks).withGrain(blocksPerPiece(blocks, entries));
  }

  /** At most a chunk of a dot product. */
  private static int blocksPerPiece(int blocks, int entries) {
    long worth = (long) ENTRIES_PER_PIECE * blocks / Math.max(1, entries);
    return Math.clamp(worth, 1, SolverKernels.CHUNK / SlicedRows.BLOCK);
  }

  @Override
  public Grid chunks(int items) {
    return Grid.of(SolverKernels.chunks(items)).withGrain(CHUNKS_PER_PIECE);
  }

  @Override
  public Grid dense(int rows, int columns) {
    int worth = DENSE_ENTRIES_PER_PIECE / Math.max(1, columns);
    return Grid.of(rows).withGrain(Math.max(1, worth));
  }

  @Override
  public Grid items(int items) {
    return Grid.of(items);
  }

  @Override
  public Grid gathered(int items) {
    return Grid.of(items).withGrain(GATHERED_PER_PIECE);
  }

  @Override
  public Grid sum() {
    return ONE_ITEM;
  }
}
