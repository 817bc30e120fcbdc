package io.fairlead.solver.internal.device;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.assertj.core.api.Assertions.within;

import io.fairlead.cli.StandInDriver;
import io.fairlead.device.DeviceException;
import io.fairlead.ffi.cuda.CudaSettings;
import io.fairlead.runtime.Fairlead;
import io.fairlead.runtime.FairleadConfig;
import io.fairlead.solver.CsrMatrix;
import io.fairlead.solver.Poisson;
import io.fairlead.solver.Solution;
import io.fairlead.solver.SolverOptions;
import io.fairlead.solver.SparseSolver;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.nio.file.Path;
import java.util.Arrays;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/**
 * Solves through the CUDA driver, on the stand-in, without any compiler: the kernels that are
 * shipped are loaded as a driver loads them, and run as {@code solver.cu} compiled for the
 * processor.
 */
@Timeout(120)
@EnabledOnOs(OS.LINUX)
class SolveOnStandInTest {
  private static final int MAJOR = 75;
  private static final String NO_COMPILER = "libno-such-compiler.so";

  @TempDir static Path folder;

  private static Path standIn = Path.of("libstandin.so");

  @BeforeAll
  static void build() {
    standIn = StandInDriver.build(folder);
    int found =
        control(
            "standin_set_kernels",
            Arena.global().allocateFrom(EmulatedGpu.get().library().toString()));
    assertThat(found).as("the library of kernels is loaded").isEqualTo(1);
  }

  private static int control(String function, Object... arguments) {
    MemoryLayout[] types =
        Arrays.stream(arguments)
            .map(each -> each instanceof Integer ? ValueLayout.JAVA_INT : ValueLayout.ADDRESS)
            .toArray(MemoryLayout[]::new);
    try {
      SymbolLookup library = SymbolLookup.libraryLookup(standIn, Arena.global());
      return (int)
          Linker.nativeLinker()
              .downcallHandle(
                  library.findOrThrow(function), FunctionDescriptor.of(ValueLayout.JAVA_INT, types))
              .invokeWithArguments(arguments);
    } catch (RuntimeException | Error e) {
      throw e;
    } catch (Throwable e) {
      throw new AssertionError(e);
    }
  }

  @BeforeEach
  @AfterEach
  void reset() {
    control("standin_reset");
    System.clearProperty(CudaSettings.LIBRARY_PROPERTY);
  }

  private static Fairlead open(String code) {
    // The provider that is asked whether there is a GPU knows this property alone.
    System.setProperty(CudaSettings.LIBRARY_PROPERTY, standIn.toString());
    return Fairlead.open(
        FairleadConfig.defaults()
            .withDevice("cuda")
            .withDriverSetting("nvrtc", NO_COMPILER)
            .withDriverSetting("code", code));
  }

  @ParameterizedTest
  @CsvSource({
    "any, 9, 1, prebuilt machine code",
    "any, 9, 2, prebuilt machine code",
    "binary, 8, 1, prebuilt machine code",
    "any, 10, 1, 'prebuilt PTX, compiled by the driver'",
    "ptx, 9, 1, 'prebuilt PTX, compiled by the driver'"
  })
  void aSolveNeedsNoCompiler(String code, int major, int ranks, String form) {
    CsrMatrix a = Poisson.grid3d(12);
    SolverOptions options = SolverOptions.DEFAULT.withRanks(ranks);
    Solution expected;
    try (Fairlead host = Fairlead.open(FairleadConfig.defaults().withDevice("host"));
        SparseSolver solver = SparseSolver.setup(host, a, options)) {
      assertThat(solver.setupReport().kernels()).isEqualTo("in Java");
      expected = solver.solve(ones(a.rows()));
    }
    control("standin_set_attribute", MAJOR, major);
    try (Fairlead cuda = open(code);
        SparseSolver solver = SparseSolver.setup(cuda, a, options)) {
      assertThat(solver.setupReport().kernels()).isEqualTo(form);
      Solution found = solver.solve(ones(a.rows()));
      assertThat(found.report().converged()).isTrue();
      assertThat(found.report().iterations()).isCloseTo(expected.report().iterations(), within(1));
      assertThat(found.x()).containsExactly(expected.x(), within(1e-4));
    }
    assertThat(control("standin_traps")).isZero();
  }

  private static double[] ones(int n) {
    double[] ones = new double[n];
    Arrays.fill(ones, 1.0);
    return ones;
  }

  @Test
  void sourceThatIsAskedForNeedsOne() {
    try (Fairlead cuda = open("source")) {
      assertThatThrownBy(() -> SparseSolver.kernels(cuda.device()))
          .isInstanceOf(DeviceException.class)
          .hasMessageContaining(NO_COMPILER + " cannot be loaded")
          .hasMessageContaining("code=source");
    }
  }
}
