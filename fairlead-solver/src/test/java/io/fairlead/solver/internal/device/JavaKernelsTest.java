package io.fairlead.solver.internal.device;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.device.spi.KernelArguments;
import io.fairlead.solver.CsrMatrix;
import io.fairlead.solver.internal.Parallel;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.assertj.core.data.Offset;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Each kernel against a plain loop, whole and in pieces. */
class JavaKernelsTest {
  private static final int ROWS = 2500;

  private final Random random = new Random(7);
  private final int[] ptr = new int[ROWS + 1];
  private final int[] col;
  private final double[] val;
  private final double[] x = vector(ROWS);
  private final double[] b = vector(ROWS);
  private final double[] old = vector(ROWS);
  private final double[] inverse = vector(ROWS);

  JavaKernelsTest() {
    for (int i = 0; i < ROWS; i++) {
      ptr[i + 1] = ptr[i] + entriesOf(i);
    }
    col = random.ints(ptr[ROWS], 0, ROWS).toArray();
    val = vector(ptr[ROWS]);
  }

  /** Short rows, empty ones, blocks that exceed the scratch space, and a row that does alone. */
  private int entriesOf(int row) {
    if (row == 1000) {
      return 2 * RowSums.ENTRIES + 17;
    }
    if (row % 100 < 5) {
      return 150;
    }
    return random.nextInt(9);
  }

  private double[] vector(int n) {
    return random.doubles(n, -1, 1).toArray();
  }

  private double[] product() {
    double[] y = new double[ROWS];
    for (int i = 0; i < ROWS; i++) {
      for (int k = ptr[i]; k < ptr[i + 1]; k++) {
        y[i] += val[k] * x[col[k]];
      }
    }
    return y;
  }

  /** The matrix, and what a kernel takes after it. */
  private FakeArguments matrixArguments(Object... rest) {
    CsrMatrix matrix = new CsrMatrix(ROWS, ROWS, ptr, col, val);
    SlicedRows sliced = SlicedRows.of(matrix, Parallel.SEQUENTIAL);
    List<Object> all =
        new ArrayList<>(
            List.of(sliced.slicePtr(), sliced.colIdx(), sliced.values(), sliced.order(), ROWS));
    all.addAll(List.of(rest));
    return FakeArguments.of(all.toArray());
  }

  private static void run(String name, KernelArguments arguments, int items, int pieces) {
    for (int k = pieces - 1; k >= 0; k--) {
      JavaKernels.ALL
          .get(name)
          .run(arguments, (long) items * k / pieces, (long) items * (k + 1) / pieces);
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 7, 40})
  void applyIsTheProduct(int pieces) {
    FakeArguments a = matrixArguments(x, new double[ROWS]);
    run(SolverKernels.APPLY, a, SlicedRows.blocks(ROWS), pieces);
    assertThat(a.doubles(6)).containsExactly(product());
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 3})
  void applyDotsSumsEachChunk(int pieces) {
    int chunks = SolverKernels.chunks(ROWS);
    FakeArguments a = matrixArguments(x, b, new double[ROWS], new double[3 * chunks]);
    run(SolverKernels.APPLY_DOTS, a, chunks, pieces);
    double[] q = product();
    assertThat(a.doubles(7)).containsExactly(q);
    assertThat(a.doubles(8)).containsExactly(chunkSums(x, q, b, q, q, q));
  }

  @Test
  void dotsAreThoseOfApplyDots() {
    int chunks = SolverKernels.chunks(ROWS);
    double[] q = product();
    FakeArguments a = FakeArguments.of(x, b, q, new double[3 * chunks], ROWS);
    run(SolverKernels.DOTS, a, chunks, 2);
    assertThat(a.doubles(3)).containsExactly(chunkSums(x, q, b, q, q, q));
  }

  private static double[] chunkSums(double[]... pairs) {
    int chunks = SolverKernels.chunks(ROWS);
    double[] sums = new double[pairs.length / 2 * chunks];
    for (int p = 0; p < pairs.length / 2; p++) {
      for (int i = 0; i < ROWS; i++) {
        sums[p * chunks + i / SolverKernels.CHUNK] += pairs[2 * p][i] * pairs[2 * p + 1][i];
      }
    }
    return sums;
  }

  @Test
  void residualSubtractsFromTheRightHandSide() {
    FakeArguments a = matrixArguments(x, b, new double[ROWS]);
    run(SolverKernels.RESIDUAL, a, SlicedRows.blocks(ROWS), 3);
    double[] expected = product();
    for (int i = 0; i < ROWS; i++) {
      expected[i] = b[i] - expected[i];
    }
    assertThat(a.doubles(7)).containsExactly(expected);
  }

  @Test
  void smoothMayWriteOverTheOldVector() {
    FakeArguments a = matrixArguments(x, old, b, inverse, old, 1.25, -0.25, 0.7).alias(9, 6);
    run(SolverKernels.SMOOTH, a, SlicedRows.blocks(ROWS), 3);
    double[] expected = product();
    for (int i = 0; i < ROWS; i++) {
      expected[i] = 1.25 * x[i] + -0.25 * old[i] + 0.7 * inverse[i] * (b[i] - expected[i]);
    }
    assertThat(a.doubles(9)).containsExactly(expected);
  }

  @Test
  void restrictAlsoSmoothsFromZero() {
    FakeArguments a = matrixArguments(x, new double[ROWS], inverse, new double[ROWS], 0.3);
    run(SolverKernels.RESTRICT, a, SlicedRows.blocks(ROWS), 2);
    double[] y = product();
    double[] y1 = new double[ROWS];
    for (int i = 0; i < ROWS; i++) {
      y1[i] = 0.3 * inverse[i] * y[i];
    }
    assertThat(a.doubles(6)).containsExactly(y);
    assertThat(a.doubles(8)).containsExactly(y1);
  }

  @Test
  void prolongAdds() {
    FakeArguments a = matrixArguments(x, b);
    run(SolverKernels.PROLONG, a, SlicedRows.blocks(ROWS), 5);
    double[] expected = product();
    for (int i = 0; i < ROWS; i++) {
      expected[i] = b[i] + expected[i];
    }
    assertThat(a.doubles(6)).containsExactly(expected);
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 3, 4, 5, 30})
  void denseIsTheProductUpToRounding(int n) {
    double[] m = vector(n * n);
    double[] v = vector(n);
    FakeArguments a = FakeArguments.of(m, v, new double[n], n, n);
    run(SolverKernels.DENSE, a, n, 2);
    for (int i = 0; i < n; i++) {
      double expected = 0;
      for (int j = 0; j < n; j++) {
        expected += m[i * n + j] * v[j];
      }
      assertThat(a.doubles(2)[i]).isCloseTo(expected, Offset.offset(1e-13));
    }
  }

  @Test
  void updateMovesAllThreeVectors() {
    int chunks = SolverKernels.chunks(ROWS);
    double[] scalars = {1.0, 3.0};
    double[] p = vector(ROWS);
    double[] q = vector(ROWS);
    FakeArguments a =
        FakeArguments.of(
            0.5,
            1,
            scalars,
            p,
            q,
            inverse,
            2.0,
            x,
            b,
            new double[ROWS],
            new double[2 * chunks],
            ROWS);
    run(SolverKernels.UPDATE, a, chunks, 2);
    double[] newX = new double[ROWS];
    double[] r = new double[ROWS];
    double[] z = new double[ROWS];
    for (int i = 0; i < ROWS; i++) {
      newX[i] = x[i] + 1.5 * p[i];
      r[i] = b[i] - 1.5 * q[i];
      z[i] = 2.0 * inverse[i] * r[i];
    }
    assertThat(a.doubles(7)).containsExactly(newX);
    assertThat(a.doubles(8)).containsExactly(r);
    assertThat(a.doubles(9)).containsExactly(z);
    assertThat(a.doubles(10)).containsExactly(chunkSums(r, r, r, z));
  }

  @Test
  void scaleAndAddScaled() {
    FakeArguments scale = FakeArguments.of(x, inverse, new double[ROWS], 0.4);
    run(SolverKernels.SCALE, scale, ROWS, 2);
    FakeArguments add = FakeArguments.of(-2.0, 1, new double[] {1, 4}, x, b);
    run(SolverKernels.ADD_SCALED, add, ROWS, 2);
    double[] scaled = new double[ROWS];
    double[] added = new double[ROWS];
    for (int i = 0; i < ROWS; i++) {
      scaled[i] = 0.4 * inverse[i] * x[i];
      added[i] = x[i] + -8.0 * b[i];
    }
    assertThat(scale.doubles(2)).containsExactly(scaled);
    assertThat(add.doubles(4)).containsExactly(added);
  }

  @Test
  void dotLeavesTheOtherRowsOfThePartialsAlone() {
    int chunks = SolverKernels.chunks(ROWS);
    double[] partials = vector(3 * chunks);
    FakeArguments a = FakeArguments.of(x, b, partials, 1, ROWS);
    run(SolverKernels.DOT, a, chunks, 2);
    double[] expected = partials.clone();
    System.arraycopy(chunkSums(x, b), 0, expected, chunks, chunks);
    assertThat(a.doubles(2)).containsExactly(expected);
  }

  @Test
  void sumTakesTheStepThatIsNamed() {
    double[] partials = {1, 2, 3, 10, 20, 30, 4, 5, 6};
    double[] s = new double[Slots.COUNT];
    s[Slots.RR] = 1000;
    s[Slots.RZ] = 12;
    FakeArguments alpha = FakeArguments.of(partials, s, 3, 3, Slots.PQ, SolverKernels.STEP_ALPHA);
    run(SolverKernels.SUM, alpha, 1, 1);
    double[] after = alpha.doubles(1);
    assertThat(after[Slots.PQ]).isEqualTo(6);
    assertThat(after[Slots.ALPHA]).isEqualTo(2);
    assertThat(after[Slots.PREDICTED]).isEqualTo(1000 - 2 * 2 * 60 + 4 * 15);

    FakeArguments beta = FakeArguments.of(partials, s, 3, 2, Slots.RR, SolverKernels.STEP_BETA);
    run(SolverKernels.SUM, beta, 1, 1);
    assertThat(beta.doubles(1)[Slots.RR]).isEqualTo(6);
    assertThat(beta.doubles(1)[Slots.BETA]).isEqualTo(5);
    assertThat(beta.doubles(1)[Slots.RZ]).isEqualTo(60);
  }

  @Test
  void packGathers() {
    FakeArguments a = FakeArguments.of(new int[] {5, 0, 7}, x, new double[3]);
    run(SolverKernels.PACK, a, 3, 1);
    assertThat(a.doubles(2)).containsExactly(x[5], x[0], x[7]);
  }
}
