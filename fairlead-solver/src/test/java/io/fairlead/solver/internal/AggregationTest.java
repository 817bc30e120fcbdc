package io.fairlead.solver.internal;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.solver.CsrMatrix;
import io.fairlead.solver.Poisson;
import java.util.HashSet;
import java.util.Set;
import org.junit.jupiter.api.Test;

class AggregationTest {
  private static int[] rowsAsNodes(CsrMatrix a) {
    int[] ptr = new int[a.rows() + 1];
    for (int i = 0; i < ptr.length; i++) {
      ptr[i] = i;
    }
    return ptr;
  }

  private static NodeGraph graph(CsrMatrix a, double threshold) {
    return NodeGraph.of(a, rowsAsNodes(a), threshold);
  }

  private static void requireSound(NodeGraph graph, Aggregation aggregation) {
    Set<Integer> used = new HashSet<>();
    for (int v = 0; v < graph.nodes(); v++) {
      int c = aggregation.aggregateOf()[v];
      assertThat(c).isBetween(-1, aggregation.count() - 1);
      assertThat(c == Aggregation.NONE).isEqualTo(graph.dominant()[v]);
      used.add(c);
    }
    used.remove(Aggregation.NONE);
    assertThat(used).hasSize(aggregation.count());
    assertThat(aggregation.roots()).isSorted();
    for (int c = 0; c < aggregation.count(); c++) {
      assertThat(aggregation.aggregateOf()[aggregation.roots()[c]]).isEqualTo(c);
    }
  }

  @Test
  void everyNodeIsInOneAggregateNumberedByItsRoot() {
    for (int seed = 0; seed < 20; seed++) {
      CsrMatrix a = RandomMatrices.laplacian(700, 1 + seed % 4, 0.1, seed);
      NodeGraph graph = graph(a, seed % 2 == 0 ? 0 : 0.2);
      requireSound(graph, Aggregation.of(graph));
    }
  }

  @Test
  void aGridCoarsensBySixOrMore() {
    CsrMatrix a = Poisson.grid3d(20);
    assertThat(Aggregation.of(graph(a, 0.08)).count()).isLessThan(a.rows() / 6);
  }

  @Test
  void rowsWithOnlyADiagonalStayOut() {
    double[][] full = new double[6][6];
    for (int i = 0; i < 6; i++) {
      full[i][i] = 2;
    }
    full[1][4] = full[4][1] = -1;
    NodeGraph graph = graph(RandomMatrices.ofDense(full), 0.08);
    Aggregation aggregation = Aggregation.of(graph);
    requireSound(graph, aggregation);
    assertThat(aggregation.count()).isEqualTo(1);
    assertThat(aggregation.aggregateOf()).containsExactly(-1, 0, -1, -1, 0, -1);
    assertThat(aggregation.roots()).containsExactly(1);
  }

  @Test
  void weakConnectionsAreLeftOut() {
    double[][] full = {{1, -1e-3, -0.9}, {-1e-3, 1, 0}, {-0.9, 0, 1}};
    NodeGraph graph = graph(RandomMatrices.ofDense(full), 0.08);
    assertThat(graph.idx()[graph.ptr()[0]]).isEqualTo(2);
    assertThat(graph.ptr()).containsExactly(0, 1, 1, 2);
    assertThat(graph.dominant()).containsExactly(false, true, false);
  }

  @Test
  void pointsOfSeveralRowsStayTogether() {
    CsrMatrix scalar = Poisson.grid2d(8);
    double[][] one = RandomMatrices.dense(scalar);
    double[][] two = new double[128][128];
    for (int i = 0; i < 64; i++) {
      for (int j = 0; j < 64; j++) {
        two[2 * i][2 * j] = one[i][j];
        two[2 * i + 1][2 * j + 1] = 3 * one[i][j];
      }
    }
    int[] points = new int[65];
    for (int v = 0; v < 65; v++) {
      points[v] = 2 * v;
    }
    NodeGraph graph = NodeGraph.of(RandomMatrices.ofDense(two), points, 0.08);
    assertThat(graph.nodes()).isEqualTo(64);
    assertThat(Aggregation.of(graph).aggregateOf())
        .containsExactly(Aggregation.of(graph(scalar, 0.08)).aggregateOf());
  }
}
