package io.fairlead.cli.bench;

import io.fairlead.cli.bench.CommRuns.Job;
import io.fairlead.cli.bench.CommWorker.Group;
import io.fairlead.cli.bench.InstalledMpi.Binding;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * What two ranks are worth: V-cycles on one rank and on two by a launcher, beside those of HPGMG-FV
 * (M. Adams, S. Williams and others, hpgmg/hpgmg on GitHub) on a grid of the same size. One device
 * worker and one core for each rank everywhere. The cycles differ, so only the speed-ups stand side
 * by side.
 */
final class CommSpeedUps {
  private static final int ROUNDS = 3;

  private static final Pattern CYCLE = Pattern.compile("v-cycle= *(\\d+)");
  private static final Pattern SOLVED = Pattern.compile("done \\(([0-9.]+) seconds\\)");
  private static final String HEADLINE = "=====";
  private static final String MEASURING = HEADLINE + " Running";

  private final InstalledMpi launcher;
  private final boolean quick;
  private final int scale;
  private final CommRuns runs;
  private final List<Double> ours = new ArrayList<>();
  private final List<Double> oursBeside = new ArrayList<>();
  private final List<Double> theirs = new ArrayList<>();

  CommSpeedUps(InstalledMpi launcher, boolean quick, int scale, CommRuns runs) {
    this.launcher = launcher;
    this.quick = quick;
    this.scale = scale;
    this.runs = runs;
  }

  static List<String> ids(String where) {
    return List.of(
        "comm.vcycle.differences." + where,
        "comm.vcycle.speedup." + where,
        "comm.vcycle.over_hpgmg." + where);
  }

  List<Row> rows(String where) throws Exception {
    List<String> ids = ids(where);
    Map<String, Samples> inProcess = runs.inProcess(ChildProcess.Place.tight(2), job(2));
    Map<String, Samples> last = Map.of();
    for (int round = 0; round < (quick ? 1 : ROUNDS); round++) {
      boolean theirsFirst = round % 2 == 1;
      double c = theirsFirst ? theirSpeedUp() : Double.NaN;
      Map<String, Samples> one = runs.inProcess(ChildProcess.Place.tight(1), job(1));
      Map<String, Samples> two = runs.launched(launcher, Binding.BOUND, job(2));
      add(speedUp(one, two), theirsFirst ? c : theirSpeedUp());
      last = two;
    }
    return List.of(
        differences(ids.get(0), inProcess, last),
        ours.isEmpty()
            ? Row.missing(ids.get(1), runs.why())
            : Row.median(ids.get(1), "x", "higher", Samples.of(ours)),
        overTheirs(ids.get(2)));
  }

  /** One worker and one device for each rank of a process, as with processes. */
  private Job job(int ranks) {
    Set<Group> groups = EnumSet.of(Group.VCYCLE);
    List<String> properties =
        List.of("-Dfairlead.host.workers=1", "-Dfairlead.host.devices=" + ranks);
    return new Job(groups, scale, 0, properties, ranks);
  }

  private static double speedUp(Map<String, Samples> one, Map<String, Samples> two) {
    Samples alone = one.get("vcycle.seconds");
    Samples together = two.get("vcycle.seconds");
    return alone == null || together == null ? Double.NaN : alone.median() / together.median();
  }

  private double theirSpeedUp() throws Exception {
    if (runs.knowsNoHpgmg()) {
      return Double.NaN;
    }
    int box = quick ? 4 : 5;
    List<Double> one = secondsPerCycle(runs.hpgmg(launcher, 1, box, 8));
    List<Double> two = secondsPerCycle(runs.hpgmg(launcher, 2, box, 4));
    return one.isEmpty() || two.isEmpty()
        ? Double.NaN
        : Samples.of(one).median() / Samples.of(two).median();
  }

  private void add(double our, double their) {
    if (Double.isNaN(our)) {
      return;
    }
    ours.add(our);
    if (!Double.isNaN(their)) {
      oursBeside.add(our);
      theirs.add(their);
    }
    runs.say(
        String.format(
            Locale.ROOT,
            "%d^3 on two ranks by %s: %.3f times as fast as on one; HPGMG: %s",
            CommVCycles.grid(quick),
            launcher.flavour().word(),
            our,
            Double.isNaN(their) ? "not measured" : String.format(Locale.ROOT, "%.3f", their)));
  }

  /** Iterations, and digits of the residual, that are not those of ranks in one process. */
  private Row differences(
      String id, Map<String, Samples> inProcess, Map<String, Samples> launched) {
    double different = 0;
    for (String name : List.of("vcycle.iterations", "vcycle.residual")) {
      Samples here = inProcess.get(name);
      Samples there = launched.get(name);
      if (here == null || there == null) {
        return Row.missing(id, runs.why());
      }
      different += here.max() == there.max() && here.min() == there.min() ? 0 : 1;
    }
    return Row.exact(id, "figures", "lower", different).bounds(0.0, null);
  }

  private Row overTheirs(String id) {
    if (runs.knowsNoHpgmg()) {
      runs.say(
          "no HPGMG: FAIRLEAD_HPGMG=FOLDER names a clone of hpgmg/hpgmg on GitHub; see"
              + " fairlead-lab/peers/mpi/hpgmg.sh");
      return Row.missing(id, "not measured: no HPGMG");
    }
    return theirs.isEmpty()
        ? Row.missing(id, runs.why())
        : Row.ratio(id, Samples.of(oursBeside), Samples.of(theirs))
            .higherIsBetter()
            .bounds(0.85, 0.97);
  }

  /** Of each solve of the largest grid, which comes first, after the warm-up. */
  static List<Double> secondsPerCycle(List<String> output) {
    List<Double> seconds = new ArrayList<>();
    boolean measuring = false;
    int cycles = 0;
    for (String line : output) {
      if (line.startsWith(HEADLINE)) {
        if (measuring) {
          break;
        }
        measuring = line.startsWith(MEASURING);
      }
      Matcher cycle = CYCLE.matcher(line);
      if (cycle.find()) {
        cycles = Integer.parseInt(cycle.group(1));
      }
      Matcher solved = SOLVED.matcher(line);
      if (measuring && cycles > 0 && solved.find()) {
        seconds.add(Double.parseDouble(solved.group(1)) / cycles);
      }
    }
    return seconds;
  }
}
