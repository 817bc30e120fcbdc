package io.fairlead.solver.internal;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.within;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fairlead.solver.CsrMatrix;
import io.fairlead.solver.MatrixFile;
import io.fairlead.solver.MatrixMarket;
import io.fairlead.solver.ReadProgress;
import io.fairlead.solver.SpdCheck;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Real systems, where they are at hand: iterations and solutions against known ones. */
class RealMatricesTest {
  private static Path root() {
    return Path.of(System.getProperty("fairlead.root", "..")).toAbsolutePath().normalize();
  }

  /** The folder of matrices that may not be copied here: a property, a variable, or beside us. */
  private static Path dataFolder() {
    String named = System.getProperty("FAIRLEAD_DATA", System.getenv("FAIRLEAD_DATA"));
    return named != null ? Path.of(named) : root().resolve("../shared/data").normalize();
  }

  private static ReferenceSolver.Result solve(CsrMatrix a, double[] b) {
    Hierarchy hierarchy = Multigrid.setUp(a, Multigrid.Options.DEFAULT, Parallel.SEQUENTIAL);
    return new ReferenceSolver(
            a, ReferenceSolver.multigrid(hierarchy, Parallel.SEQUENTIAL), Parallel.SEQUENTIAL)
        .solve(b, new double[a.rows()], 1e-8, 200);
  }

  @Test
  void thePowerSystemIsSolvedToItsOnes() {
    MatrixFile file = MatrixMarket.readMatrix(root().resolve("data/1138_bus.mtx"));
    SpdCheck.require(file);
    CsrMatrix a = file.matrix();
    assertThat(a.rows()).isEqualTo(1138);
    assertThat(file.stored()).isEqualTo(2596);
    double[] one = new double[a.rows()];
    double[] b = new double[a.rows()];
    Arrays.fill(one, 1.0);
    a.multiply(one, b);
    ReferenceSolver.Result result = solve(a, b);
    assertThat(result.converged()).isTrue();
    assertThat(result.iterations()).isLessThanOrEqualTo(15);
    assertThat(result.x()).containsExactly(one, within(1e-4));
  }

  @ParameterizedTest
  @CsvSource({
    "dragon_res4.mtx, dragon_res4_b.mtx, 25, 5.984640572092e+01, -4.294301794373e+03",
    "dragon_res3.mtx, dragon_res3_b.mtx, 30, 1.301867233563e+02, -1.889092700601e+04",
    "dragon_res2.mtx.gz, dragon_res2_b.mtx.gz, 40, 3.335272054468e+02, -8.204110349927e+04"
  })
  void theDragonIsSolved(String matrix, String rhs, int most, double norm, double sum) {
    Path file = dataFolder().resolve(matrix);
    String wanted = "FAIRLEAD_DATA is to name a folder that holds " + matrix;
    boolean there = Files.exists(file);
    if (!there) {
      System.err.println("!! NOT RUN: " + wanted);
    }
    assumeTrue(there, wanted);
    MatrixFile read = MatrixMarket.readMatrix(file);
    SpdCheck.require(read);
    CsrMatrix a = read.matrix();
    double[] b =
        MatrixMarket.readColumns(
                dataFolder().resolve(rhs), a.rows(), "the right-hand side", ReadProgress.SILENT)
            .column(0);
    ReferenceSolver.Result result = solve(a, b);
    assertThat(result.converged()).isTrue();
    assertThat(result.iterations()).isLessThanOrEqualTo(most);
    double squares = Arrays.stream(result.x()).map(v -> v * v).sum();
    assertThat(Math.sqrt(squares)).isCloseTo(norm, within(1e-6 * norm));
    assertThat(Arrays.stream(result.x()).sum()).isCloseTo(sum, within(1e-6 * Math.abs(sum)));
  }
}
