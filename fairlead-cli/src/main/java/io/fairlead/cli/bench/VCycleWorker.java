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
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
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
  private static final int WARM_UP = 4;

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
    Map<WaitMode, Setup> setups = new EnumMap<>(WaitMode.class);
    try {
      CsrMatrix matrix = Poisson.grid3d(grid);
      for (WaitMode mode : WaitMode.values()) {
        setups.put(mode, Setup.open(mode, matrix, ranks));
      }
      for (int round = -WARM_UP; round < rounds; round++) {
        round(setups, round);
      }
      return 0;
    } finally {
      setups.values().forEach(Setup::close);
    }
  }

  /** All modes once, each round beginning with another one: nobody always has the first turn. */
  private void round(Map<WaitMode, Setup> setups, int round) {
    PrintWriter out = Objects.requireNonNull(spec).commandLine().getOut();
    List<WaitMode> order = new ArrayList<>(List.of(WaitMode.values()));
    Collections.rotate(order, round);
    for (WaitMode mode : order) {
      VCycleBenchmark.Result result =
          Objects.requireNonNull(setups.get(mode)).benchmark().run(cycles);
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

  private record Setup(Fairlead fairlead, VCycleBenchmark benchmark) {
    static Setup open(WaitMode mode, CsrMatrix matrix, int ranks) {
      Fairlead fairlead =
          Fairlead.open(FairleadConfig.fromSystem().withDevice("host").withWaitMode(mode));
      return new Setup(fairlead, VCycleBenchmark.setup(fairlead, matrix, ranks));
    }

    void close() {
      benchmark.close();
      fairlead.close();
    }
  }
}
