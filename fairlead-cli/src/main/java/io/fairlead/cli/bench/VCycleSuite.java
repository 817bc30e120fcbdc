package io.fairlead.cli.bench;

import io.fairlead.cli.Progress;
import io.fairlead.task.WaitMode;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;

/**
 * Twenty V-cycles on a generated 3-D Poisson problem, on 1, 2 and 4 ranks, in each waiting mode:
 * the benchmark that led to non-blocking waits in CUDA.jl, which lost 8 % to blocking ones there
 * (row 000.4).
 *
 * <p>Each number of ranks has a process of its own, with one device worker and one core for each
 * rank (as far as there are cores; four ranks on two cores are the case where ranks outnumber
 * cores). The modes take turns within that process, so that they meet the same machine.
 */
final class VCycleSuite implements Suite {
  private static final int CYCLES = 20;
  private static final int[] RANKS = {1, 2, 4};

  @Override
  public String name() {
    return "vcycle";
  }

  @Override
  public String about() {
    return "20 multigrid V-cycles on 1, 2 and 4 ranks: non-blocking waits beside blocking and spin";
  }

  @Override
  public boolean takesGrid() {
    return true;
  }

  @Override
  public List<String> ids(Options options) {
    List<String> ids = new ArrayList<>();
    for (int ranks : RANKS) {
      for (WaitMode mode : WaitMode.values()) {
        ids.add(id(ranks, mode));
      }
      ids.add(id(ranks) + ".nonblocking_over_blocking");
      ids.add(id(ranks) + ".nonblocking_over_spin");
    }
    return ids;
  }

  private static String id(int ranks) {
    return "vcycle." + ranks + (ranks == 1 ? "rank" : "ranks");
  }

  private static String id(int ranks, WaitMode mode) {
    return id(ranks) + "." + mode.name().toLowerCase(Locale.ROOT);
  }

  @Override
  public List<Row> run(Options options, Progress progress) throws Exception {
    List<Row> rows = new ArrayList<>();
    int grid = options.quick() ? Math.min(options.grid(), 32) : options.grid();
    int rounds = options.quick() ? 3 : 9;
    for (int ranks : RANKS) {
      progress.done(
          String.format(
              Locale.ROOT,
              "%d cycles at %d^3 on %d rank(s), %d rounds",
              CYCLES,
              grid,
              ranks,
              rounds));
      rows.addAll(rows(ranks, measure(ranks, grid, rounds)));
    }
    return rows;
  }

  private static Map<WaitMode, Samples> measure(int ranks, int grid, int rounds) throws Exception {
    Map<WaitMode, List<Double>> seconds = new EnumMap<>(WaitMode.class);
    ChildProcess.Result child =
        ChildProcess.onCores(
            ranks,
            List.of("-Dfairlead.host.workers=1", "-Dfairlead.host.devices=" + ranks),
            List.of("bench", "vcycle-worker", "" + ranks, "" + grid, "" + CYCLES, "" + rounds));
    for (String line : child.lines("sample ")) {
      List<String> words = List.of(line.split(" ", -1));
      seconds
          .computeIfAbsent(WaitMode.valueOf(words.get(1)), mode -> new ArrayList<>())
          .add(Double.parseDouble(words.get(2)));
    }
    Map<WaitMode, Samples> samples = new EnumMap<>(WaitMode.class);
    seconds.forEach((mode, list) -> samples.put(mode, Samples.of(list)));
    return samples;
  }

  private static List<Row> rows(int ranks, Map<WaitMode, Samples> samples) {
    List<Row> rows = new ArrayList<>();
    Samples blocking = of(samples, WaitMode.BLOCKING);
    for (WaitMode mode : WaitMode.values()) {
      Row row = Row.median(id(ranks, mode), "ms", "lower", of(samples, mode).times(1e3));
      rows.add(mode == WaitMode.BLOCKING ? row : row.against(blocking.median() * 1e3));
    }
    boolean moreRanksThanCores = ranks > ChildProcess.cores(ranks);
    Samples nonblocking = of(samples, WaitMode.NONBLOCKING);
    rows.add(
        Row.ratio(id(ranks) + ".nonblocking_over_blocking", nonblocking, blocking)
            .bounds(moreRanksThanCores ? 0.9 : 1.0, null));
    rows.add(
        Row.ratio(id(ranks) + ".nonblocking_over_spin", nonblocking, of(samples, WaitMode.SPIN)));
    return rows;
  }

  private static Samples of(Map<WaitMode, Samples> samples, WaitMode mode) {
    return Objects.requireNonNull(samples.get(mode), () -> "no samples for " + mode);
  }
}
