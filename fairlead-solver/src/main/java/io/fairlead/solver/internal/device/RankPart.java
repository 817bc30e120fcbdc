package io.fairlead.solver.internal.device;

import io.fairlead.memory.Device;
import io.fairlead.memory.DeviceBuffer;
import io.fairlead.solver.Operator;
import io.fairlead.solver.internal.RowPartition;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * One rank's part of a solver, on its device: what all solves share and none changes.
 *
 * <p>The first {@code distributed} levels are cut into blocks of rows, one for each rank. From
 * there on every rank holds all of the level and computes all of it: such levels are so small that
 * computing them everywhere takes less time than one exchange of ghosts, so one all-gather on the
 * way down takes the place of six exchanges for each of them, and nothing is sent on the way up.
 *
 * <p>Immutable; any thread may read. {@link #close} frees the device memory in stream order.
 *
 * @param rows who owns which rows of the finest level
 * @param gathered who owns which rows of the level whose right-hand side is gathered; null where
 *     none is
 * @param operator stands for the finest level's matrix; null if that is there
 * @param inverse rows of the last level's dense inverse; null if its smoother stands for the solve
 * @param inverseRows how many rows of it are here
 */
record RankPart(
    int rank,
    int ranks,
    Device device,
    SolverKernels kernels,
    RowPartition rows,
    List<RankLevel> levels,
    int distributed,
    @Nullable RowPartition gathered,
    @Nullable Operator operator,
    @Nullable DeviceBuffer inverse,
    int inverseRows,
    boolean multigrid,
    Uploads uploads)
    implements AutoCloseable {

  RankLevel finest() {
    return levels.getFirst();
  }

  int last() {
    return levels.size() - 1;
  }

  /** Rows of the finest level that the rank owns. */
  int owned() {
    return rows.size(rank);
  }

  @Override
  public void close() {
    uploads.close();
  }
}
