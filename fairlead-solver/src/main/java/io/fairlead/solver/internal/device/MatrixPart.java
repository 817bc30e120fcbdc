package io.fairlead.solver.internal.device;

import io.fairlead.device.spi.Grid;
import io.fairlead.memory.DeviceBuffer;
import io.fairlead.solver.CsrMatrix;
import io.fairlead.solver.internal.LocalMatrix;

/**
 * One rank's rows of a matrix on its device.
 *
 * @param grid a work item for each row, cut so that a piece is worth a worker
 * @param halo what its product takes from other ranks
 */
record MatrixPart(
    int rows, DeviceBuffer rowPtr, DeviceBuffer colIdx, DeviceBuffer values, Grid grid, Halo halo) {

  /** About eight microseconds of work: ten times what it costs to hand a piece to a worker. */
  private static final int ENTRIES_PER_PIECE = 8192;

  static MatrixPart of(LocalMatrix local, Uploads uploads) {
    return of(local.matrix(), Halo.of(local, uploads), uploads);
  }

  /** A matrix whose product needs nothing from other ranks. */
  static MatrixPart whole(CsrMatrix matrix, Uploads uploads) {
    return of(matrix, Halo.none(matrix.cols()), uploads);
  }

  private static MatrixPart of(CsrMatrix matrix, Halo halo, Uploads uploads) {
    int entries = matrix.entries();
    return new MatrixPart(
        matrix.rows(),
        uploads.ints(matrix.rowPtr(), matrix.rows() + 1),
        uploads.ints(matrix.colIdx(), entries),
        uploads.doubles(matrix.values(), entries),
        Grid.of(matrix.rows()).withGrain(grain(matrix.rows(), entries)),
        halo);
  }

  private static int grain(int rows, int entries) {
    long rowsPerPiece = (long) ENTRIES_PER_PIECE * rows / Math.max(1, entries);
    return (int) Math.clamp(rowsPerPiece, RowSums.ROWS, 16L * RowSums.ROWS);
  }
}
