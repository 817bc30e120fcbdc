package io.fairlead.cli;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.within;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fairlead.device.DeviceException;
import io.fairlead.runtime.DriverReport;
import io.fairlead.runtime.Fairlead;
import io.fairlead.runtime.FairleadConfig;
import io.fairlead.solver.CsrMatrix;
import io.fairlead.solver.DenseColumns;
import io.fairlead.solver.MatrixMarket;
import io.fairlead.solver.Poisson;
import io.fairlead.solver.Preconditioner;
import io.fairlead.solver.ReadProgress;
import io.fairlead.solver.Solution;
import io.fairlead.solver.SolverOptions;
import io.fairlead.solver.SparseSolver;
import io.fairlead.solver.VCycleBenchmark;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** The same solves on the host device and on a GPU: the same answers in as many iterations, ± 1. */
@Timeout(300)
class SolveOnCudaGpuTest {
  private static final Path BUS =
      Path.of(System.getProperty("fairlead.root", ".."), "data", "1138_bus.mtx");
  private static final Pattern ITERATIONS = Pattern.compile("\"iterations\": (\\d+)");

  @TempDir Path folder;

  @BeforeEach
  void requireGpu() {
    DriverReport cuda =
        Fairlead.drivers().stream()
            .filter(driver -> driver.name().equals("cuda"))
            .findFirst()
            .orElse(new DriverReport("cuda", false, 0, "its provider is not on the path"));
    if (!cuda.available()) {
      System.err.println("!! NOT RUN: needs a CUDA device: " + cuda.text());
    }
    assumeTrue(cuda.available(), cuda.text());
  }

  // --- the command
  // --------------------------------------------------------------------------------

  @Test
  void theBusMatrixIsSolved() throws IOException {
    compareCommands(BUS, 1138);
  }

  @ParameterizedTest
  @CsvSource({"dragon_res4.mtx", "dragon_res3.mtx", "dragon_res2.mtx.gz"})
  void aMatrixFromTheFieldIsSolved(String name) throws IOException {
    Path file = beside(name);
    compareCommands(file, MatrixMarket.readMatrix(file).matrix().rows());
  }

  private void compareCommands(Path file, int rows) throws IOException {
    Path onHost = folder.resolve("host.mtx");
    Path onGpu = folder.resolve("gpu.mtx");
    int expected = iterations("host", file, onHost);
    int found = iterations("cuda", file, onGpu);
    assertThat(found).isCloseTo(expected, within(1));
    double[] x = column(onHost, rows);
    // The condition of these matrices stands between a residual of 1e-8 and the answer.
    assertThat(distance(x, column(onGpu, rows))).isLessThanOrEqualTo(1e-4 * norm(x));
  }

  private static int iterations(String device, Path file, Path out) {
    Run run = Run.fairlead("solve", file, "--device", device, "--out", out, "--json", "-");
    assertThat(run.code()).as("on %s: %s", device, run.err()).isZero();
    Matcher matcher = ITERATIONS.matcher(run.out());
    assertThat(matcher.find()).as(run.out()).isTrue();
    return Integer.parseInt(matcher.group(1));
  }

  private static double[] column(Path file, int rows) throws IOException {
    DenseColumns x = MatrixMarket.readColumns(file, rows, "x", ReadProgress.SILENT);
    return x.column(0);
  }

  private static Path beside(String name) {
    String data = System.getProperty("FAIRLEAD_DATA", System.getenv("FAIRLEAD_DATA"));
    String wanted = "FAIRLEAD_DATA is to name a folder that holds " + name;
    Path file = data == null ? Path.of(name) : Path.of(data, name);
    if (!Files.exists(file)) {
      System.err.println("!! NOT RUN: " + wanted);
    }
    assumeTrue(Files.exists(file), wanted);
    return file;
  }

  // --- the library
  // --------------------------------------------------------------------------------

  @ParameterizedTest
  @CsvSource({
    "64, AMG, 1",
    "64, AMG, 2",
    "40, JACOBI, 1",
    "40, NONE, 2",
    "1, AMG, 1",
    "10, JACOBI, 3",
    "96, AMG, 1"
  })
  void poissonIsSolved(int n, Preconditioner preconditioner, int ranks) {
    CsrMatrix a = Poisson.grid3d(n);
    SolverOptions options =
        SolverOptions.DEFAULT.withPreconditioner(preconditioner).withRanks(ranks);
    Solution expected = solve("host", a, options);
    Solution found = solve("cuda", a, options);
    assertThat(found.report().converged()).as("%s", found.report()).isTrue();
    assertThat(found.report().iterations()).isCloseTo(expected.report().iterations(), within(1));
    assertThat(distance(expected.x(), found.x())).isLessThanOrEqualTo(1e-5 * norm(expected.x()));
    double[] product = new double[a.rows()];
    a.multiply(found.x(), product);
    double[] b = ones(a.rows());
    assertThat(distance(b, product)).isLessThanOrEqualTo(1.01 * options.tolerance() * norm(b));
  }

  /** Each form of the kernels, where it can be had: as many iterations, and how long it took. */
  @ParameterizedTest
  @ValueSource(strings = {"binary", "source", "ptx"})
  void eachFormOfTheKernelsSolvesAlike(String code) {
    CsrMatrix a = Poisson.grid3d(64);
    Solution expected = solve("host", a, SolverOptions.DEFAULT);
    try (Fairlead fairlead =
        Fairlead.open(
            FairleadConfig.defaults().withDevice("cuda").withDriverSetting("code", code))) {
      long start = System.nanoTime();
      String form = kernels(fairlead);
      System.out.println(
          "kernels: " + form + ", loaded in " + (System.nanoTime() - start) / 1_000_000 + " ms");
      try (SparseSolver solver = SparseSolver.setup(fairlead, a, SolverOptions.DEFAULT)) {
        assertThat(solver.setupReport().kernels()).isEqualTo(form);
        Solution found = solver.solve(ones(a.rows()));
        assertThat(found.report().iterations())
            .isCloseTo(expected.report().iterations(), within(1));
        assertThat(distance(expected.x(), found.x()))
            .isLessThanOrEqualTo(1e-5 * norm(expected.x()));
      }
    }
  }

  private static String kernels(Fairlead fairlead) {
    try {
      return SparseSolver.kernels(fairlead.device());
    } catch (DeviceException notHere) {
      System.out.println("!! NOT RUN: " + notHere.getMessage());
      assumeTrue(false, notHere.getMessage());
      throw notHere;
    }
  }

  /** Two solves on one device have the same bits. */
  @Test
  void aSolveRepeatsItself() {
    CsrMatrix a = Poisson.grid3d(48);
    try (Fairlead fairlead = open("cuda");
        SparseSolver solver = SparseSolver.setup(fairlead, a, SolverOptions.DEFAULT)) {
      double[] x = solver.solve(ones(a.rows())).x();
      assertThat(solver.solve(ones(a.rows())).x()).containsExactly(x);
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2})
  void cyclesReduceTheResidualAlike(int ranks) {
    double[] expected = cycles("host", ranks);
    double[] found = cycles("cuda", ranks);
    for (int k = 0; k < expected.length; k++) {
      assertThat(found[k]).isCloseTo(expected[k], within(1e-9 + 1e-6 * expected[k]));
    }
  }

  private static double[] cycles(String device, int ranks) {
    try (Fairlead fairlead = open(device);
        VCycleBenchmark cycles = VCycleBenchmark.setup(fairlead, Poisson.grid3d(48), ranks)) {
      return cycles.run(10).relativeResiduals();
    }
  }

  private static Solution solve(String device, CsrMatrix a, SolverOptions options) {
    try (Fairlead fairlead = open(device);
        SparseSolver solver = SparseSolver.setup(fairlead, a, options)) {
      return solver.solve(ones(a.rows()));
    }
  }

  private static Fairlead open(String device) {
    return Fairlead.open(FairleadConfig.defaults().withDevice(device));
  }

  private static double[] ones(int n) {
    double[] ones = new double[n];
    Arrays.fill(ones, 1.0);
    return ones;
  }

  private static double distance(double[] a, double[] b) {
    assertThat(b).hasSameSizeAs(a);
    double[] difference = new double[a.length];
    for (int i = 0; i < a.length; i++) {
      difference[i] = a[i] - b[i];
    }
    return norm(difference);
  }

  private static double norm(double[] v) {
    double sum = 0;
    for (double each : v) {
      sum += each * each;
    }
    return Math.sqrt(sum);
  }
}
