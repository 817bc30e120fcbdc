package io.fairlead.solver.internal;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.solver.CsrMatrix;
import io.fairlead.solver.Poisson;
import java.util.Arrays;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class LocalMatrixTest {

  /** What a halo exchange does, in one process. */
  private static double[] distributedProduct(
      CsrMatrix a, RowPartition rows, RowPartition cols, double[] x) {
    LocalMatrix[] parts = LocalMatrix.splitAll(a, rows, cols);
    double[][] local = new double[parts.length][];
    for (int rank = 0; rank < parts.length; rank++) {
      local[rank] = new double[parts[rank].matrix().cols()];
      System.arraycopy(x, cols.first(rank), local[rank], 0, parts[rank].owned());
      Arrays.fill(local[rank], parts[rank].owned(), local[rank].length, Double.NaN);
    }
    for (int from = 0; from < parts.length; from++) {
      exchange(parts, local, from);
    }
    double[] y = new double[a.rows()];
    for (int rank = 0; rank < parts.length; rank++) {
      double[] mine = new double[rows.size(rank)];
      parts[rank].matrix().multiply(local[rank], mine);
      System.arraycopy(mine, 0, y, rows.first(rank), mine.length);
    }
    return y;
  }

  private static void exchange(LocalMatrix[] parts, double[][] local, int from) {
    LocalMatrix sender = parts[from];
    for (int n = 0; n < sender.sendRanks().length; n++) {
      int to = sender.sendRanks()[n];
      LocalMatrix receiver = parts[to];
      int slot = Arrays.binarySearch(receiver.receiveRanks(), from);
      assertThat(slot).isNotNegative();
      int start = receiver.receivePtr()[slot];
      int count = sender.sendPtr()[n + 1] - sender.sendPtr()[n];
      assertThat(receiver.receivePtr()[slot + 1] - start).isEqualTo(count);
      for (int k = 0; k < count; k++) {
        local[to][receiver.owned() + start + k] =
            local[from][sender.send()[sender.sendPtr()[n] + k]];
      }
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 3, 4, 7})
  void splitProductEqualsTheWholeBitForBit(int ranks) {
    CsrMatrix a = RandomMatrices.laplacian(3000, 3, 0.1, 5);
    double[] x = RandomMatrices.vector(a.rows(), 6);
    double[] whole = new double[a.rows()];
    a.multiply(x, whole);
    RowPartition rows = RowPartition.byEntries(a, ranks);
    assertThat(distributedProduct(a, rows, rows, x)).containsExactly(whole);
  }

  @ParameterizedTest
  @ValueSource(ints = {2, 4})
  void transfersSplitToo(int ranks) {
    CsrMatrix a = Poisson.grid2d(60);
    Hierarchy hierarchy = Multigrid.setUp(a, Multigrid.Options.DEFAULT, Parallel.SEQUENTIAL);
    Level.Transfer transfer = hierarchy.levels().get(0).coarser();
    assertThat(transfer).isNotNull();
    RowPartition fine = RowPartition.byEntries(a, ranks);
    RowPartition coarse = fine.coarser(transfer.rootRow());
    double[] xc = RandomMatrices.vector(transfer.p().cols(), 1);
    double[] up = new double[a.rows()];
    transfer.p().multiply(xc, up);
    assertThat(distributedProduct(transfer.p(), fine, coarse, xc)).containsExactly(up);
    double[] xf = RandomMatrices.vector(a.rows(), 2);
    double[] down = new double[transfer.r().rows()];
    transfer.r().multiply(xf, down);
    assertThat(distributedProduct(transfer.r(), coarse, fine, xf)).containsExactly(down);
  }

  @Test
  void oneRankSplitAloneIsTheSameAsAmongAll() {
    CsrMatrix a = RandomMatrices.laplacian(500, 2, 0.1, 9);
    RowPartition rows = RowPartition.byEntries(a, 3);
    LocalMatrix[] all = LocalMatrix.splitAll(a, rows, rows);
    for (int rank = 0; rank < 3; rank++) {
      LocalMatrix one = LocalMatrix.split(a, rows, rows, rank);
      assertThat(one.ghosts()).containsExactly(all[rank].ghosts());
      assertThat(one.send()).containsExactly(all[rank].send());
      assertThat(one.matrix().colIdx()).containsExactly(all[rank].matrix().colIdx());
    }
  }

  @Test
  void ghostsAreSortedByOwnerAndNeverOwn() {
    CsrMatrix a = RandomMatrices.laplacian(1000, 3, 0.1, 10);
    RowPartition rows = RowPartition.byEntries(a, 5);
    for (int rank = 0; rank < 5; rank++) {
      LocalMatrix part = LocalMatrix.split(a, rows, rows, rank);
      for (int n = 0; n < part.receiveRanks().length; n++) {
        assertThat(part.receiveRanks()[n]).isNotEqualTo(rank);
        for (int k = part.receivePtr()[n]; k < part.receivePtr()[n + 1]; k++) {
          assertThat(rows.owner(part.ghosts()[k])).isEqualTo(part.receiveRanks()[n]);
        }
      }
      assertThat(part.ghosts()).isSorted();
    }
  }

  @Test
  void moreRanksThanRowsLeavesSomeEmpty() {
    CsrMatrix a = Poisson.grid2d(2);
    RowPartition rows = RowPartition.byEntries(a, 7);
    assertThat(rows.rows()).isEqualTo(4);
    double[] x = {1, 2, 3, 4};
    double[] whole = new double[4];
    a.multiply(x, whole);
    assertThat(distributedProduct(a, rows, rows, x)).containsExactly(whole);
  }
}
