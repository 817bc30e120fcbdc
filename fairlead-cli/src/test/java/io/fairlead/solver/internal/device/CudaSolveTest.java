package io.fairlead.solver.internal.device;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.within;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fairlead.device.Kernel;
import io.fairlead.runtime.Fairlead;
import io.fairlead.runtime.FairleadConfig;
import io.fairlead.solver.CsrMatrix;
import io.fairlead.solver.MatrixMarket;
import io.fairlead.solver.Poisson;
import io.fairlead.solver.Preconditioner;
import io.fairlead.solver.Solution;
import io.fairlead.solver.SolverOptions;
import io.fairlead.solver.SparseSolver;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/**
 * Whole solves with the CUDA kernels, on an emulated GPU, beside the same with the Java kernels on
 * the host device.
 */
@Timeout(120)
class CudaSolveTest {

  @Test
  void everyKernelTakesWhatIsDeclared() {
    EmulatedGpu gpu = EmulatedGpu.get();
    try (Fairlead fairlead = EmulatedGpuProvider.open(1);
        SolverKernels kernels = SolverKernels.load(fairlead.device())) {
      assertThat(kernels.grids).isInstanceOf(GpuGrids.class);
      assertThat(all(kernels))
          .hasSameSizeAs(JavaKernels.ALL.keySet())
          .allSatisfy(
              kernel ->
                  assertThat(declared(kernel))
                      .isEqualTo(withoutItems(gpu.signature(kernel.name()))));
    }
  }

  private static List<Kernel> all(SolverKernels k) {
    return List.of(
        k.apply,
        k.applyDots,
        k.residual,
        k.smooth,
        k.restrict,
        k.prolong,
        k.dense,
        k.scale,
        k.addScaled,
        k.update,
        k.dots,
        k.dot,
        k.sum,
        k.pack);
  }

  private static String declared(Kernel kernel) {
    String text = kernel.toString();
    String parameters = text.substring(kernel.name().length() + 1, text.length() - 1);
    return parameters.replace("inOut(", "out(");
  }

  /** The number of items is no declared parameter; the driver adds it. */
  private static String withoutItems(String signature) {
    return signature.replaceAll(", I64$", "");
  }

  @Test
  void theHostDeviceTakesTheJavaKernels() {
    try (Fairlead fairlead = host();
        SolverKernels kernels = SolverKernels.load(fairlead.device())) {
      assertThat(kernels.grids).isInstanceOf(HostGrids.class);
    }
  }

  private static Fairlead host() {
    return Fairlead.open(FairleadConfig.defaults().withDevice("host").withHostWorkers(2));
  }

  @ParameterizedTest
  @CsvSource({
    "poisson-3d, AMG, 1",
    "poisson-3d, AMG, 2",
    "poisson-3d, JACOBI, 1",
    "poisson-3d, NONE, 2",
    "poisson-2d, AMG, 3",
    "1138_bus.mtx, AMG, 1",
    "poisson-2d, JACOBI, 2",
    "one-row, AMG, 1"
  })
  void solvesAsTheHostDeviceDoes(String name, Preconditioner preconditioner, int ranks) {
    SolverOptions options =
        SolverOptions.DEFAULT.withPreconditioner(preconditioner).withRanks(ranks);
    CsrMatrix a = matrix(name);
    compare(a, ones(a.rows()), options);
  }

  /** Discretised surfaces, whose rows differ in length; with a right-hand side of their own. */
  @Test
  void solvesAMatrixFromTheFieldAsTheHostDeviceDoes() {
    Path file = beside("dragon_res4.mtx");
    CsrMatrix a = MatrixMarket.readMatrix(file).matrix();
    double[] b = new Random(3).doubles(a.rows(), -1, 1).toArray();
    compare(a, b, SolverOptions.DEFAULT);
  }

  private static void compare(CsrMatrix a, double[] b, SolverOptions options) {
    EmulatedGpu.get();
    Solution expected;
    try (Fairlead fairlead = host()) {
      expected = solve(fairlead, a, b, options);
    }
    Solution found;
    try (Fairlead fairlead = EmulatedGpuProvider.open(Math.min(2, options.ranks()))) {
      found = solve(fairlead, a, b, options);
      assertThat(solve(fairlead, a, b, options).x()).containsExactly(found.x());
    }
    assertThat(found.report().converged()).as("%s", found.report()).isTrue();
    assertThat(found.report().iterations()).isCloseTo(expected.report().iterations(), within(1));
    assertThat(distance(expected.x(), found.x())).isLessThanOrEqualTo(1e-4 * norm(expected.x()));
    assertThat(found.report().relativeResidual()).isLessThanOrEqualTo(options.tolerance());
    assertThat(relativeResidual(a, found.x(), b)).isLessThanOrEqualTo(1.01 * options.tolerance());
  }

  private static Solution solve(Fairlead fairlead, CsrMatrix a, double[] b, SolverOptions options) {
    try (SparseSolver solver = SparseSolver.setup(fairlead, a, options)) {
      return solver.solve(b);
    }
  }

  private static double relativeResidual(CsrMatrix a, double[] x, double[] b) {
    double[] product = new double[b.length];
    a.multiply(x, product);
    return distance(b, product) / norm(b);
  }

  private static double distance(double[] a, double[] b) {
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

  private static CsrMatrix matrix(String name) {
    return switch (name) {
      case "poisson-3d" -> Poisson.grid3d(16);
      case "poisson-2d" -> Poisson.grid2d(60);
      case "one-row" -> new CsrMatrix(1, 1, new int[] {0, 1}, new int[] {0}, new double[] {4});
      default -> MatrixMarket.readMatrix(Path.of("../data", name)).matrix();
    };
  }

  private static double[] ones(int n) {
    double[] ones = new double[n];
    Arrays.fill(ones, 1.0);
    return ones;
  }

  private static Path beside(String name) {
    String folder = System.getProperty("FAIRLEAD_DATA", System.getenv("FAIRLEAD_DATA"));
    String wanted = "FAIRLEAD_DATA is to name a folder that holds " + name;
    Path file = folder == null ? Path.of(name) : Path.of(folder, name);
    if (!Files.exists(file)) {
      System.err.println("!! NOT RUN: " + wanted);
    }
    assumeTrue(Files.exists(file), wanted);
    return file;
  }
}
