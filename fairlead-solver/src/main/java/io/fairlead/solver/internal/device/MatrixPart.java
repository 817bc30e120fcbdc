package io.fairlead.solver.internal.device;

import io.fairlead.device.spi.Grid;
import io.fairlead.memory.DeviceBuffer;
import io.fairlead.solver.CsrMatrix;
import io.fairlead.solver.internal.LocalMatrix;
import io.fairlead.solver.internal.Parallel;

/**
 * One rank's rows of a matrix on its device, as {@link SlicedRows}.
 *
 * @param grid a work item for each block of rows, cut so that a piece is worth a worker
 * @param halo what its product takes from other ranks
 */
record MatrixPart(
    int rows,
    DeviceBuffer slicePtr,
    DeviceBuffer colIdx,
    DeviceBuffer values,
    DeviceBuffer order,
    Grid grid,
    Halo halo) {

  /** About six microseconds of work: several times what it costs to hand a piece to a worker. */
  private static final int ENTRIES_PER_PIECE = 8192;

  static MatrixPart of(LocalMatrix local, Uploads uploads, Parallel parallel) {
    return of(local.matrix(), Halo.of(local, uploads), uploads, parallel);
  }

  /** A matrix whose product needs nothing from other ranks. */
  static MatrixPart whole(CsrMatrix matrix, Uploads uploads, Parallel parallel) {
    return of(matrix, Halo.none(matrix.cols()), uploads, parallel);
  }

  private static MatrixPart of(CsrMatrix matrix, Halo halo, Uploads uploads, Parallel parallel) {
    SlicedRows sliced = SlicedRows.of(matrix, parallel);
    int blocks = SlicedRows.blocks(matrix.rows());
    return new MatrixPart(
        matrix.rows(),
        uploads.ints(sliced.slicePtr(), sliced.slicePtr().length),
        uploads.ints(sliced.colIdx(), sliced.entries()),
        uploads.doubles(sliced.values(), sliced.entries()),
        uploads.bytes(sliced.order()),
        Grid.of(blocks).withGrain(grain(blocks, sliced.entries())),
        halo);
  }

  /** Blocks in a piece; at most a chunk of a dot product. */
  private static int grain(int blocks, int entries) {
    long blocksPerPiece = (long) ENTRIES_PER_PIECE * blocks / Math.max(1, entries);
    return Math.clamp(blocksPerPiece, 1, SolverKernels.CHUNK / SlicedRows.BLOCK);
  }
}
