package io.fairlead.solver.internal.device;

import io.fairlead.memory.DeviceBuffer;
import io.fairlead.solver.CsrMatrix;
import io.fairlead.solver.internal.LocalMatrix;
import io.fairlead.solver.internal.Parallel;

/**
 * One rank's rows of a matrix on its device, as {@link SlicedRows}.
 *
 * @param entries what is stored, padding too
 * @param halo what its product takes from other ranks
 */
record MatrixPart(
    int rows,
    int entries,
    DeviceBuffer slicePtr,
    DeviceBuffer colIdx,
    DeviceBuffer values,
    DeviceBuffer order,
    Halo halo) {

  static MatrixPart of(LocalMatrix local, Uploads uploads, Parallel parallel) {
    return of(local.matrix(), Halo.of(local, uploads), uploads, parallel);
  }

  /** A matrix whose product needs nothing from other ranks. */
  static MatrixPart whole(CsrMatrix matrix, Uploads uploads, Parallel parallel) {
    return of(matrix, Halo.none(matrix.cols()), uploads, parallel);
  }

  private static MatrixPart of(CsrMatrix matrix, Halo halo, Uploads uploads, Parallel parallel) {
    SlicedRows sliced = SlicedRows.of(matrix, parallel);
    return new MatrixPart(
        matrix.rows(),
        sliced.entries(),
        uploads.ints(sliced.slicePtr(), sliced.slicePtr().length),
        uploads.ints(sliced.colIdx(), sliced.entries()),
        uploads.doubles(sliced.values(), sliced.entries()),
        uploads.bytes(sliced.order()),
        halo);
  }
}
