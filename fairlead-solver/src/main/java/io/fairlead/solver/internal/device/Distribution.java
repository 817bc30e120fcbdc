package io.fairlead.solver.internal.device;

import io.fairlead.memory.Device;
import io.fairlead.memory.DeviceBuffer;
import io.fairlead.solver.CsrMatrix;
import io.fairlead.solver.Operator;
import io.fairlead.solver.internal.DenseInverse;
import io.fairlead.solver.internal.Level;
import io.fairlead.solver.internal.LocalMatrix;
import io.fairlead.solver.internal.Parallel;
import io.fairlead.solver.internal.RowPartition;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Cuts levels into the parts of the ranks. The host's matrices stay where they are until a rank
 * asks for its {@link #part}; parts may be made at the same time, each by its rank's task.
 */
public final class Distribution {
  /**
   * A level below this many rows for each rank is replicated. A smoothing step on so few rows takes
   * about as long as the wait and the message of one exchange.
   */
  private static final int REPLICATED_ROWS = 4096;

  private final Parallel parallel;
  private final Levels levels;
  private final int ranks;
  private final @Nullable Operator operator;
  private final int distributed;
  private final List<RowPartition> partitions = new ArrayList<>();
  private final List<Cut> cuts = new ArrayList<>();

  /** The parts of one distributed level, by rank; empty where there is only one. */
  private record Cut(List<LocalMatrix> a, List<LocalMatrix> prolong, List<LocalMatrix> restrict) {}

  /** Plans the cut of the levels for so many ranks. */
  public Distribution(Levels levels, int ranks, @Nullable Operator operator, Parallel parallel) {
    this.parallel = parallel;
    this.levels = levels;
    this.ranks = ranks;
    this.operator = operator;
    this.distributed = distributedLevels();
    partition();
    for (int l = 0; ranks > 1 && l < distributed; l++) {
      cuts.add(cut(l));
    }
  }

  private int distributedLevels() {
    int count = levels.levels().size();
    int l = 1;
    while (l < count - 1 && levels.levels().get(l).rows() >= REPLICATED_ROWS * ranks) {
      l++;
    }
    return ranks == 1 ? count : Math.min(l, count);
  }

  private void partition() {
    Levels.OfLevel finest = levels.levels().getFirst();
    CsrMatrix a = finest.a();
    partitions.add(RowPartition.byEntries(a == null ? empty(finest.rows()) : a, ranks));
    for (int l = 0; l + 1 < levels.levels().size(); l++) {
      Level.Transfer transfer = levels.levels().get(l).coarser();
      if (transfer != null) {
        partitions.add(partitions.get(l).coarser(transfer.rootRow()));
      }
    }
  }

  private static CsrMatrix empty(int rows) {
    return new CsrMatrix(rows, rows, new int[rows + 1], new int[0], new double[0]);
  }

  private Cut cut(int l) {
    RowPartition here = partitions.get(l);
    CsrMatrix a = levels.levels().get(l).a();
    Level.Transfer transfer = levels.levels().get(l).coarser();
    List<LocalMatrix> none = List.of();
    List<LocalMatrix> ofA = a == null ? none : List.of(LocalMatrix.splitAll(a, here, here));
    if (transfer == null) {
      return new Cut(ofA, none, none);
    }
    RowPartition next = partitions.get(l + 1);
    boolean nextIsCut = l + 1 < distributed;
    return new Cut(
        ofA,
        nextIsCut ? List.of(LocalMatrix.splitAll(transfer.p(), here, next)) : none,
        List.of(LocalMatrix.splitAll(transfer.r(), next, here)));
  }

  /** The levels that are cut into ranks; the others are on every rank. */
  int distributed() {
    return distributed;
  }

  /**
   * Puts one rank's part on its device. Runs on the rank's task, on whose stream the uploads are;
   * parks it until there is room.
   */
  RankPart part(int rank, Device device, SolverKernels kernels) {
    Uploads uploads = new Uploads(device);
    try {
      return part(rank, device, kernels, uploads);
    } catch (RuntimeException | Error failure) {
      uploads.close();
      throw failure;
    }
  }

  private RankPart part(int rank, Device device, SolverKernels kernels, Uploads uploads) {
    List<RankLevel> parts = new ArrayList<>();
    for (int l = 0; l < levels.levels().size(); l++) {
      parts.add(l < distributed ? block(l, rank, uploads) : whole(l, uploads));
    }
    int last = parts.size() - 1;
    boolean invertsBlock = last < distributed && ranks > 1;
    DenseInverse inverse = levels.inverse();
    int from = invertsBlock ? partitions.get(last).first(rank) : 0;
    int rows = invertsBlock ? partitions.get(last).size(rank) : parts.get(last).rows();
    return new RankPart(
        rank,
        ranks,
        device,
        kernels,
        partitions.getFirst(),
        List.copyOf(parts),
        distributed,
        gathered(),
        operator,
        inverse == null ? null : rowsOf(inverse, from, rows, uploads),
        rows,
        levels.multigrid(),
        uploads);
  }

  private static DeviceBuffer rowsOf(DenseInverse inverse, int from, int rows, Uploads uploads) {
    int size = inverse.size();
    return uploads.doubles(inverse.entries(), from * size, rows * size);
  }

  private @Nullable RowPartition gathered() {
    if (ranks == 1) {
      return null;
    }
    if (distributed < levels.levels().size()) {
      return partitions.get(distributed);
    }
    return levels.inverse() == null ? null : partitions.getLast();
  }

  private RankLevel block(int l, int rank, Uploads uploads) {
    if (ranks == 1) {
      return whole(l, uploads);
    }
    Levels.OfLevel level = levels.levels().get(l);
    RowPartition rows = partitions.get(l);
    Cut cut = cuts.get(l);
    Level.Transfer transfer = level.coarser();
    MatrixPart prolong = null;
    if (transfer != null) {
      prolong =
          cut.prolong().isEmpty()
              ? MatrixPart.whole(
                  rowsOf(transfer.p(), rows.first(rank), rows.end(rank)), uploads, parallel)
              : MatrixPart.of(cut.prolong().get(rank), uploads, parallel);
    }
    return new RankLevel(
        cut.a().isEmpty() ? null : MatrixPart.of(cut.a().get(rank), uploads, parallel),
        rows.size(rank),
        uploads.doubles(level.inverseDiagonal(), rows.first(rank), rows.size(rank)),
        level.smoother(),
        prolong,
        cut.restrict().isEmpty()
            ? null
            : MatrixPart.of(cut.restrict().get(rank), uploads, parallel));
  }

  private static CsrMatrix rowsOf(CsrMatrix m, int from, int end) {
    int start = m.rowPtr()[from];
    int[] ptr = new int[end - from + 1];
    for (int i = 0; i < ptr.length; i++) {
      ptr[i] = m.rowPtr()[from + i] - start;
    }
    int last = m.rowPtr()[end];
    return new CsrMatrix(
        end - from,
        m.cols(),
        ptr,
        Arrays.copyOfRange(m.colIdx(), start, last),
        Arrays.copyOfRange(m.values(), start, last));
  }

  private RankLevel whole(int l, Uploads uploads) {
    Levels.OfLevel level = levels.levels().get(l);
    CsrMatrix a = level.a();
    Level.Transfer transfer = level.coarser();
    return new RankLevel(
        a == null ? null : MatrixPart.whole(a, uploads, parallel),
        level.rows(),
        uploads.doubles(level.inverseDiagonal(), level.rows()),
        level.smoother(),
        transfer == null ? null : MatrixPart.whole(transfer.p(), uploads, parallel),
        transfer == null ? null : MatrixPart.whole(transfer.r(), uploads, parallel));
  }
}
