package io.fairlead.solver;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.assertj.core.api.Assertions.catchThrowable;

import io.fairlead.device.DeviceException;
import io.fairlead.device.OutOfDeviceMemoryException;
import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.DriverException;
import io.fairlead.host.HostFaults;
import io.fairlead.memory.MemoryStats;
import io.fairlead.runtime.Fairlead;
import io.fairlead.task.WaitMode;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

/** A device that fails ends the solve with its fault, on any number of ranks, and nothing hangs. */
class SolverFaultTest {
  private static final CsrMatrix MATRIX = Poisson.grid2d(40);
  private static final double[] B = SolverFixture.random(MATRIX.rows(), 31);

  private static SparseSolver setup(Fairlead fairlead, int ranks) {
    return SparseSolver.setup(fairlead, MATRIX, SolverOptions.DEFAULT.withRanks(ranks));
  }

  private static HostFaults faults(Fairlead fairlead) {
    return HostFaults.of(fairlead.device().context().driver());
  }

  /** The statuses along the chain of causes. */
  private static List<Integer> statuses(Throwable failure) {
    List<Integer> statuses = new ArrayList<>();
    for (Throwable each = failure; each != null; each = each.getCause()) {
      if (each instanceof DeviceException device) {
        statuses.add(device.status());
      }
    }
    return statuses;
  }

  @ParameterizedTest
  @CsvSource({"LAUNCH,1,1", "LAUNCH,40,1", "LAUNCH,40,2", "LAUNCH,150,4", "COPY,6,1", "COPY,20,2"})
  void anAsynchronousFaultIsTheCause(DriverCall kind, long nth, int ranks) {
    try (Fairlead fairlead = SolverFixture.open();
        SparseSolver solver = setup(fairlead, ranks)) {
      faults(fairlead).failOperation(kind, nth, DriverException.LAUNCH_FAILED);
      Throwable failure = catchThrowable(() -> solver.solve(B));
      assertThat(failure).isInstanceOf(DeviceException.class);
      assertThat(statuses(failure)).contains(DriverException.LAUNCH_FAILED);
      // The context is lost, and says the same to whoever comes later.
      Throwable later = catchThrowable(() -> solver.solve(B));
      assertThat(later).isInstanceOf(DeviceException.class);
      assertThat(statuses(later)).contains(DriverException.LAUNCH_FAILED);
    }
  }

  @ParameterizedTest
  @EnumSource(WaitMode.class)
  void itIsTheCauseInEveryMode(WaitMode mode) {
    try (Fairlead fairlead = SolverFixture.open(mode);
        SparseSolver solver = setup(fairlead, 2)) {
      faults(fairlead).failOperation(DriverCall.LAUNCH, 90, DriverException.ILLEGAL_ADDRESS);
      Throwable failure = catchThrowable(() -> solver.solve(B));
      assertThat(failure).isInstanceOf(DeviceException.class);
      assertThat(statuses(failure)).contains(DriverException.ILLEGAL_ADDRESS);
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2})
  void aRefusedCallFailsOneSolveAndNoMore(int ranks) {
    try (Fairlead fairlead = SolverFixture.open();
        SparseSolver solver = setup(fairlead, ranks)) {
      double[] expected = solver.solve(B).x();
      for (long nth : new long[] {1, 3, 25, 60}) {
        faults(fairlead).failCall(DriverCall.LAUNCH, nth, DriverException.INVALID_VALUE);
        assertThatThrownBy(() -> solver.solve(B))
            .isInstanceOfSatisfying(
                DeviceException.class,
                e -> assertThat(e.status()).isEqualTo(DriverException.INVALID_VALUE));
        faults(fairlead).clear();
        assertThat(solver.solve(B).x()).containsExactly(expected);
      }
    }
  }

  @Test
  void aSetupThatIsRefusedLeavesNothing() {
    try (Fairlead fairlead = SolverFixture.open()) {
      for (long nth : new long[] {1, 5, 9}) {
        faults(fairlead).failCall(DriverCall.COPY, nth, DriverException.INVALID_VALUE);
        assertThatThrownBy(() -> setup(fairlead, 2)).isInstanceOf(DeviceException.class);
        faults(fairlead).clear();
      }
      MemoryStats memory = fairlead.device().memory();
      assertThat(memory.inUse() - memory.pendingFree()).isZero();
      try (SparseSolver solver = setup(fairlead, 2)) {
        SolverFixture.assertSolved(MATRIX, solver.solve(B), B, 1e-8);
      }
    }
  }

  @Test
  void aSolverThatCouldNeverSolveIsRefused() {
    long resident;
    try (Fairlead fairlead = SolverFixture.open();
        SparseSolver solver = setup(fairlead, 1)) {
      resident = solver.setupReport().residentBytes();
    }
    try (Fairlead fairlead =
        Fairlead.open(SolverFixture.host().withDeviceMemory(resident + 30_000))) {
      assertThatThrownBy(() -> setup(fairlead, 1))
          .isInstanceOf(OutOfDeviceMemoryException.class)
          .hasMessageContaining("and a solve");
    }
  }
}
