package io.fairlead.solver.internal.device;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.solver.CsrMatrix;
import io.fairlead.solver.MatrixTooLargeException;
import io.fairlead.solver.internal.Parallel;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Nothing is lost, nothing is added, and rows keep their order of entries. */
class SlicedRowsTest {
  private static CsrMatrix random(int rows, int cols, int most, long seed) {
    Random random = new Random(seed);
    int[] ptr = new int[rows + 1];
    for (int i = 0; i < rows; i++) {
      ptr[i + 1] = ptr[i] + random.nextInt(most + 1);
    }
    int[] col = random.ints(ptr[rows], 0, Math.max(1, cols)).toArray();
    double[] val = random.doubles(ptr[rows], 1, 2).toArray();
    return new CsrMatrix(rows, cols, ptr, col, val);
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 1, 3, 63, 64, 65, 1000})
  void everyRowIsThereInOrder(int rows) {
    CsrMatrix matrix = random(rows, 500, 12, rows);
    SlicedRows sliced = SlicedRows.of(matrix, Parallel.SEQUENTIAL);
    boolean[] seen = new boolean[rows];
    int padding = 0;
    for (int place = 0; place < sliced.order().length; place++) {
      int row = place / SlicedRows.BLOCK * SlicedRows.BLOCK + sliced.order()[place];
      int at = sliced.slicePtr()[place / SlicedRows.SLICE] + place % SlicedRows.SLICE;
      int end = sliced.slicePtr()[place / SlicedRows.SLICE + 1];
      if (row < rows) {
        assertThat(seen[row]).isFalse();
        seen[row] = true;
        for (int k = matrix.rowPtr()[row]; k < matrix.rowPtr()[row + 1]; k++) {
          assertThat(sliced.colIdx()[at]).isEqualTo(matrix.colIdx()[k]);
          assertThat(sliced.values()[at]).isEqualTo(matrix.values()[k]);
          at += SlicedRows.SLICE;
        }
      }
      for (; at < end; at += SlicedRows.SLICE) {
        assertThat(sliced.values()[at]).isZero();
        assertThat(sliced.colIdx()[at]).isBetween(0, matrix.cols() - 1);
        padding++;
      }
    }
    assertThat(seen).doesNotContain(false);
    assertThat(sliced.entries()).isEqualTo(matrix.entries() + padding);
  }

  @Test
  void sortingKeepsThePaddingSmall() {
    CsrMatrix matrix = random(10_000, 500, 12, 1);
    SlicedRows sliced = SlicedRows.of(matrix, Parallel.SEQUENTIAL);
    assertThat(sliced.entries()).isLessThan((int) (1.1 * matrix.entries()));
  }

  @Test
  void theThreadsDoNotMatter() {
    CsrMatrix matrix = random(10_000, 500, 12, 2);
    SlicedRows expected = SlicedRows.of(matrix, Parallel.SEQUENTIAL);
    Parallel backwards =
        (n, minChunk, body) -> {
          for (int end = n; end > 0; end -= minChunk) {
            body.run(Math.max(0, end - minChunk), end);
          }
        };
    SlicedRows sliced = SlicedRows.of(matrix, backwards);
    assertThat(sliced.colIdx()).isEqualTo(expected.colIdx());
    assertThat(sliced.values()).isEqualTo(expected.values());
    assertThat(sliced.order()).isEqualTo(expected.order());
  }

  @Test
  void moreEntriesThanAnArrayHoldsAreRefused() {
    int half = 1 << 28; // four rows of it fill half of an array
    assertThat(SlicedRows.addUp(new int[] {0, half, half - 3})).isEqualTo(Integer.MAX_VALUE - 11);
    assertThatThrownBy(() -> SlicedRows.addUp(new int[] {0, half, half}))
        .isInstanceOf(MatrixTooLargeException.class)
        .hasMessageContaining("more ranks");
  }

  @Test
  void aMatrixWithoutColumnsHasNoEntries() {
    CsrMatrix matrix = new CsrMatrix(5, 0, new int[6], new int[0], new double[0]);
    assertThat(SlicedRows.of(matrix, Parallel.SEQUENTIAL).entries()).isZero();
  }
}
