package io.fairlead.cli.bench;

import io.fairlead.runtime.Fairlead;
import io.fairlead.runtime.FairleadConfig;
import io.fairlead.solver.CsrMatrix;
import io.fairlead.solver.Poisson;
import io.fairlead.solver.VCycleBenchmark;
import io.fairlead.task.WaitMode;
import java.io.PrintWriter;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.Callable;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Parameters;

/** The process in which {@link VCycleSuite} measures one number of ranks; not for users. */
@Command(name = "vcycle-worker", hidden = true)
public final class VCycleWorker implements Callable<Integer> {
  /** Rounds that are not counted: they compile the kernels and fill the pools. */
  private static final int WARM_UP = 6;

  @CommandLine.Spec private @Nullable CommandSpec spec;

  @Parameters(index = "0")
  private int ranks;

  @Parameters(index = "1")
  private int grid;

  @Parameters(index = "2")
  private int cycles;

  @Parameters(index = "3")
  private int rounds;

  /** Made by the command line parser. */
  public VCycleWorker() {}

  @Override
  public Integer call() {
    List<Setup> setups = new ArrayList<>();
    try {
      CsrMatrix matrix = Poisson.grid3d(grid);
      List<WaitMode> modes = List.of(WaitMode.values());
      modes.forEach(mode -> setups.add(Setup.open(mode, matrix, ranks)));
      modes.reversed().forEach(mode -> setups.add(Setup.open(mode, matrix, ranks)));
      for (int round = -WARM_UP; round < rounds; round++) {
        round(setups, round);
      }
      return 0;
    } finally {
      setups.forEach(Setup::close);
    }
  }

  /**
   * All modes once, each round beginning with another one: nobody always has the first turn. Every
   * other round goes backwards, so that nobody always follows the same one, and uses the setups
   * that were opened in the opposite order: with the same mode in all places, the last place was up
   * to three hundredths faster than the first.
   */
  private void round(List<Setup> setups, int round) {
    PrintWriter out = Objects.requireNonNull(spec).commandLine().getOut();
    int modes = setups.size() / 2;
    boolean backwards = Math.floorMod(round, 2) == 1;
    List<Setup> order =
        new ArrayList<>(setups.subList(backwards ? modes : 0, backwards ? 2 * modes : modes));
    Collections.rotate(order, Math.floorDiv(round, 2));
    for (Setup setup : order) {
      WaitMode mode = setup.mode();
      VCycleBenchmark.Result result = setup.benchmark().run(cycles);
      if (round >= 0) {
        out.println(
            "sample "
                + mode
                + " "
                + result.seconds()
                + " "
                + result.waits()
                + " "
                + result.messages()
                + " "
                + result.relativeResiduals()[cycles - 1]);
      }
    }
    out.flush();
  }

  private record Setup(WaitMode mode, Fairlead fairlead, VCycleBenchmark benchmark) {
    static Setup open(WaitMode mode, CsrMatrix matrix, int ranks) {
      Fairlead fairlead =
          Fairlead.open(FairleadConfig.fromSystem().withDevice("host").withWaitMode(mode));
      return new Setup(mode, fairlead, VCycleBenchmark.setup(fairlead, matrix, ranks));
    }

    void close() {
      benchmark.close();
      fairlead.close();
    }
  }
}
