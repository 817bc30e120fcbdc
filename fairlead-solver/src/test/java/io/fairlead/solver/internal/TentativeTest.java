package io.fairlead.solver.internal;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.within;

import io.fairlead.solver.CsrMatrix;
import java.util.Arrays;
import org.junit.jupiter.api.Test;

class TentativeTest {
  private static final int ROWS = 600;

  private static Aggregation aggregation(int nodes, int rowsPerNode, int[] nodePtr) {
    CsrMatrix a = RandomMatrices.laplacian(nodes * rowsPerNode, 2, 0.1, 3);
    return Aggregation.of(NodeGraph.of(a, nodePtr, 0.0));
  }

  private static int[] points(int nodes, int rowsPerNode) {
    int[] ptr = new int[nodes + 1];
    for (int v = 0; v <= nodes; v++) {
      ptr[v] = v * rowsPerNode;
    }
    return ptr;
  }

  /** {@code T Tᵀ...}: fine = T coarse, and the columns of T are orthonormal. */
  private static Tentative requireExact(double[][] nearNull, int rowsPerNode) {
    int[] nodePtr = points(ROWS / rowsPerNode, rowsPerNode);
    Aggregation aggregation = aggregation(ROWS / rowsPerNode, rowsPerNode, nodePtr);
    Tentative tentative = Tentative.of(aggregation, nodePtr, nearNull);
    for (int m = 0; m < nearNull.length; m++) {
      double[] back = new double[ROWS];
      tentative.matrix().multiply(tentative.coarse()[m], back);
      assertThat(back).containsExactly(nearNull[m], within(1e-12));
    }
    CsrMatrix gram =
        SparseProduct.multiply(
            tentative.matrix().transpose(), tentative.matrix(), Parallel.SEQUENTIAL);
    double[][] dense = RandomMatrices.dense(gram);
    for (int i = 0; i < dense.length; i++) {
      for (int j = 0; j < dense.length; j++) {
        assertThat(dense[i][j]).isCloseTo(i == j ? 1 : 0, within(1e-12));
      }
    }
    return tentative;
  }

  @Test
  void oneVectorIsReproduced() {
    requireExact(new double[][] {RandomMatrices.vector(ROWS, 1)}, 1);
  }

  @Test
  void severalVectorsAreReproduced() {
    double[][] three = {
      RandomMatrices.vector(ROWS, 1), RandomMatrices.vector(ROWS, 2), RandomMatrices.vector(ROWS, 3)
    };
    Tentative tentative = requireExact(three, 2);
    int columns = tentative.matrix().cols();
    assertThat(tentative.nodePtr()[tentative.nodePtr().length - 1]).isEqualTo(columns);
  }

  @Test
  void dependentVectorsGetNoColumn() {
    double[] v = RandomMatrices.vector(ROWS, 1);
    double[] twice = new double[ROWS];
    for (int i = 0; i < ROWS; i++) {
      twice[i] = -2 * v[i];
    }
    Tentative one = requireExact(new double[][] {v}, 1);
    Tentative both = requireExact(new double[][] {v, twice}, 1);
    assertThat(both.matrix().cols()).isEqualTo(one.matrix().cols());
  }

  @Test
  void aVectorThatIsZeroSomewhereIsReproduced() {
    double[] v = RandomMatrices.vector(ROWS, 1);
    Arrays.fill(v, 0, 200, 0.0);
    Tentative tentative = requireExact(new double[][] {v}, 1);
    assertThat(tentative.matrix().cols()).isLessThan(tentative.nodePtr().length - 1);
  }
}
