package io.fairlead.solver;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.comm.Comm;
import io.fairlead.comm.CommConfig;
import io.fairlead.comm.CommException;
import io.fairlead.comm.spi.ThreadLevel;
import io.fairlead.comm.spi.TransportSettings;
import io.fairlead.comm.wire.WireTransport;
import io.fairlead.device.OutOfDeviceMemoryException;
import io.fairlead.fault.FairleadException;
import io.fairlead.runtime.Fairlead;
import io.fairlead.sim.SimNetwork;
import io.fairlead.task.WaitMode;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.function.Function;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

/** Ranks that are processes, each with its own devices; here over simulated wires. */
@Timeout(120)
class SolverWorldTest {
  private static final CsrMatrix MATRIX = Poisson.grid3d(12);
  private static final double[] B = SolverFixture.random(MATRIX.rows(), 17);

  /** A rank: what a process would have of its own. */
  private record Rank(Fairlead fairlead, Comm world) {}

  /** Runs it on each rank, with a Fairlead of its own, and answers by rank. */
  private static <T> List<T> onRanks(
      int ranks, SimNetwork.Settings settings, WaitMode mode, Function<Rank, T> body) {
    SimNetwork network = new SimNetwork(5, ranks, settings);
    CommConfig limits = CommConfig.DEFAULT;
    List<T> results = new ArrayList<>(Collections.nCopies(ranks, null));
    List<Fairlead> opened = new ArrayList<>();
    List<Comm> worlds = new ArrayList<>();
    try {
      for (int i = 0; i < ranks; i++) {
        int number = i;
        Fairlead fairlead = SolverFixture.open(mode);
        opened.add(fairlead);
        worlds.add(
            Comm.open(
                fairlead.tasks(),
                () ->
                    new WireTransport(
                        network.wire(number),
                        new TransportSettings(1, limits.eagerBytes(), limits.eagerMessages())),
                limits));
      }
      List<Thread> threads = new ArrayList<>();
      for (int i = 0; i < ranks; i++) {
        int number = i;
        threads.add(
            Thread.ofPlatform()
                .start(
                    () ->
                        results.set(
                            number, body.apply(new Rank(opened.get(number), worlds.get(number))))));
      }
      for (Thread thread : threads) {
        thread.join();
      }
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    } finally {
      closeTogether(worlds);
      opened.forEach(Fairlead::close);
    }
    assertThat(network.violations()).isEmpty();
    return results;
  }

  /** As processes do, who wait for each other there. */
  private static void closeTogether(List<Comm> worlds) {
    List<Thread> closers = new ArrayList<>();
    for (Comm world : worlds) {
      closers.add(Thread.ofPlatform().start(world::close));
    }
    try {
      for (Thread closer : closers) {
        closer.join();
      }
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
  }

  private static Solution solve(Rank rank) {
    try (SparseSolver solver =
        SparseSolver.setup(rank.fairlead, rank.world, MATRIX, SolverOptions.DEFAULT)) {
      solver.solve(B);
      return solver.solve(B, B);
    }
  }

  private static Solution inOneProcess(int ranks) {
    try (Fairlead fairlead = SolverFixture.open();
        SparseSolver solver =
            SparseSolver.setup(fairlead, MATRIX, SolverOptions.DEFAULT.withRanks(ranks))) {
      return solver.solve(B, B);
    }
  }

  @ParameterizedTest
  @CsvSource({"1,SERIALIZED", "2,SERIALIZED", "3,FUNNELED", "4,SERIALIZED"})
  void everyRankGetsTheWholeSolutionBitForBitAsInOneProcess(int ranks, ThreadLevel level) {
    Solution expected = inOneProcess(ranks);
    List<Solution> solutions =
        onRanks(
            ranks,
            SimNetwork.Settings.QUICK.withLevel(level),
            WaitMode.NONBLOCKING,
            SolverWorldTest::solve);
    for (Solution each : solutions) {
      assertThat(each.x()).containsExactly(expected.x());
      assertThat(each.report().iterations()).isEqualTo(expected.report().iterations());
      assertThat(each.report().messages()).isEqualTo(expected.report().messages());
    }
  }

  @ParameterizedTest
  @EnumSource(WaitMode.class)
  void inEveryWaitingMode(WaitMode mode) {
    double[] expected = inOneProcess(2).x();
    for (Solution each : onRanks(2, SimNetwork.Settings.QUICK, mode, SolverWorldTest::solve)) {
      assertThat(each.x()).containsExactly(expected);
    }
  }

  /** Short packets, late packets, and blobs in pieces change nothing. */
  @Test
  void overAWireThatIsShortOfEverything() {
    double[] expected = inOneProcess(2).x();
    SimNetwork.Settings want = SimNetwork.Settings.QUICK.withWant(512, 24, 4096, 20);
    for (Solution each : onRanks(2, want, WaitMode.NONBLOCKING, SolverWorldTest::solve)) {
      assertThat(each.x()).containsExactly(expected);
    }
  }

  /** Every one says what is wrong with the matrix, and none that another has failed. */
  @Test
  void allRanksFindThatAMatrixIsIndefinite() {
    double[] values = MATRIX.values().clone();
    for (int row = 0; row < MATRIX.rows(); row++) {
      int diagonal = MATRIX.find(row, row);
      values[diagonal] = row == 700 ? 0.01 : values[diagonal];
    }
    CsrMatrix indefinite =
        new CsrMatrix(MATRIX.rows(), MATRIX.cols(), MATRIX.rowPtr(), MATRIX.colIdx(), values);
    SolverOptions plain = SolverOptions.DEFAULT.withPreconditioner(Preconditioner.NONE);
    List<FairleadException> thrown =
        onRanks(
            2,
            SimNetwork.Settings.QUICK,
            WaitMode.NONBLOCKING,
            rank -> {
              try (SparseSolver solver =
                  SparseSolver.setup(rank.fairlead, rank.world, indefinite, plain)) {
                return failure(() -> solver.solve(B));
              }
            });
    assertThat(thrown).hasSize(2).allMatch(NotPositiveDefiniteException.class::isInstance);
    assertThat(thrown.get(0)).hasMessage(thrown.get(1).getMessage());
  }

  @Test
  void aRankThatFailsFailsTheOthersWithItsCause() {
    List<FairleadException> thrown =
        onRanks(
            2,
            SimNetwork.Settings.QUICK,
            WaitMode.NONBLOCKING,
            rank ->
                failure(
                    () -> { // also of the setup: the other one may still be in it
                      try (SparseSolver solver =
                          SparseSolver.setup(
                              rank.fairlead, rank.world, MATRIX, SolverOptions.DEFAULT)) {
                        if (rank.world.rank() == 1) {
                          rank.world.fail(new IllegalStateException("the third wheel came off"));
                        }
                        solver.solve(B);
                      }
                    }));
    assertThat(thrown)
        .allMatch(CommException.class::isInstance)
        .allSatisfy(each -> assertThat(each).hasMessageContaining("the third wheel came off"));
  }

  /** The others learn why, not only that it has closed. */
  @Test
  void aRankWithoutRoomFailsTheOthersWithItsCause() {
    CsrMatrix large = Poisson.grid3d(24);
    double[] b = SolverFixture.ones(large.rows());
    List<FairleadException> thrown =
        onRanks(
            2,
            SimNetwork.Settings.QUICK,
            WaitMode.NONBLOCKING,
            rank -> {
              if (rank.world.rank() == 1) {
                try (Fairlead small =
                    Fairlead.open(SolverFixture.host().withDeviceMemory(64 << 10))) {
                  return failure(
                      () -> SparseSolver.setup(small, rank.world, large, SolverOptions.DEFAULT));
                }
              }
              return failure(
                  () -> {
                    try (SparseSolver solver =
                        SparseSolver.setup(
                            rank.fairlead, rank.world, large, SolverOptions.DEFAULT)) {
                      solver.solve(b);
                    }
                  });
            });
    assertThat(thrown.get(1)).isInstanceOf(OutOfDeviceMemoryException.class);
    assertThat(thrown.get(0))
        .isInstanceOf(CommException.class)
        .hasMessageContaining("rank 1 failed: ")
        .hasMessageContaining(thrown.get(1).getMessage().lines().findFirst().orElseThrow());
  }

  private static FairleadException failure(Runnable body) {
    try {
      body.run();
    } catch (FairleadException e) {
      return e;
    }
    throw new AssertionError("nothing was thrown");
  }

  @Test
  void asManyRanksAsTheWorldHasOrNoWord() {
    try (Fairlead fairlead = SolverFixture.open()) {
      assertThatThrownBy(
              () ->
                  SparseSolver.setup(
                      fairlead, fairlead.world(), MATRIX, SolverOptions.DEFAULT.withRanks(3)))
          .isInstanceOf(IllegalArgumentException.class)
          .hasMessage("3 ranks were asked for, and the communicator has 1: leave the option out");
    }
  }
}
