package io.fairlead.solver;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import org.junit.jupiter.api.Test;

class CsrMatrixTest {
  private static CsrMatrix small() {
    return new CsrMatrix(2, 3, new int[] {0, 2, 3}, new int[] {0, 2, 1}, new double[] {1, 2, 3});
  }

  @Test
  void multipliesAndTransposes() {
    double[] y = new double[2];
    small().multiply(new double[] {1, 10, 100}, y);
    assertThat(y).containsExactly(201, 30);
    CsrMatrix t = small().transpose();
    assertThat(t.rows()).isEqualTo(3);
    assertThat(t.get(2, 0)).isEqualTo(2);
    assertThat(t.get(1, 1)).isEqualTo(3);
    assertThat(t.get(0, 1)).isZero();
    assertThat(small().diagonal()).containsExactly(1, 3);
  }

  @Test
  void brokenArraysAreRefused() {
    assertThatThrownBy(() -> new CsrMatrix(2, 2, new int[] {0, 1}, new int[1], new double[1]))
        .isInstanceOf(IllegalArgumentException.class)
        .hasMessageContaining("2 rows need");
    assertThatThrownBy(() -> new CsrMatrix(2, 2, new int[] {0, 2, 1}, new int[2], new double[2]))
        .hasMessage("rowPtr descends after row 1");
    assertThatThrownBy(() -> new CsrMatrix(1, 2, new int[] {0, 2}, new int[1], new double[2]))
        .hasMessageContaining("promises 2 entries");
    for (int bad : new int[] {-1, 2, Integer.MIN_VALUE, Integer.MAX_VALUE}) {
      assertThatThrownBy(
              () -> new CsrMatrix(1, 2, new int[] {0, 1}, new int[] {bad}, new double[1]))
          .hasMessage("a column index lies outside 0..1");
    }
  }

  @Test
  void poissonRowsAreWhatTheyShouldBe() {
    CsrMatrix a = Poisson.grid3d(4);
    assertThat(a.rows()).isEqualTo(64);
    assertThat(a.entries()).isEqualTo(64 * 7 - 6 * 16);
    assertThat(SpdCheck.find(a)).isEmpty();
    assertThat(a.get(21, 21)).isEqualTo(6);
    for (int j : new int[] {20, 22, 17, 25, 5, 37}) {
      assertThat(a.get(21, j)).isEqualTo(-1);
    }
    assertThat(Poisson.grid2d(3).get(4, 4)).isEqualTo(4);
    assertThat(Poisson.grid2d(3).entries()).isEqualTo(33);
    assertThat(Poisson.grid3d(1).entries()).isEqualTo(1);
    assertThatThrownBy(() -> Poisson.grid3d(675)).hasMessageContaining("674");
    assertThatThrownBy(() -> Poisson.grid3d(0)).hasMessageContaining("at least 1");
  }
}
