package io.fairlead.solver.internal;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.solver.CsrMatrix;
import io.fairlead.solver.Poisson;
import org.junit.jupiter.api.Test;

class RowPartitionTest {
  @Test
  void blocksCoverTheRowsOnceAndKnowTheirOwner() {
    CsrMatrix a = Poisson.grid3d(9);
    for (int ranks = 1; ranks < 12; ranks++) {
      RowPartition rows = RowPartition.byEntries(a, ranks);
      int covered = 0;
      for (int rank = 0; rank < ranks; rank++) {
        assertThat(rows.first(rank)).isEqualTo(covered);
        for (int i = rows.first(rank); i < rows.end(rank); i++) {
          assertThat(rows.owner(i)).isEqualTo(rank);
        }
        covered += rows.size(rank);
      }
      assertThat(covered).isEqualTo(a.rows());
    }
  }

  @Test
  void blocksHoldAboutTheSameEntries() {
    CsrMatrix a = Poisson.grid3d(20);
    RowPartition rows = RowPartition.byEntries(a, 4);
    for (int rank = 0; rank < 4; rank++) {
      int entries = a.rowPtr()[rows.end(rank)] - a.rowPtr()[rows.first(rank)];
      assertThat(entries).isBetween(a.entries() / 4 - 300, a.entries() / 4 + 300);
    }
  }

  @Test
  void coarseRowsFollowTheirRoots() {
    CsrMatrix a = Poisson.grid2d(40);
    RowPartition fine = RowPartition.byEntries(a, 3);
    int[] roots = {0, 5, 600, 601, 1599};
    RowPartition coarse = fine.coarser(roots);
    assertThat(coarse.rows()).isEqualTo(roots.length);
    for (int c = 0; c < roots.length; c++) {
      assertThat(coarse.owner(c)).isEqualTo(fine.owner(roots[c]));
    }
  }

  @Test
  void noRanksAreRefused() {
    assertThatThrownBy(() -> RowPartition.byEntries(Poisson.grid2d(2), 0))
        .hasMessage("0 ranks; expected at least 1");
  }
}
