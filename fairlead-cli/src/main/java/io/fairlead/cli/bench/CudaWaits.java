package io.fairlead.cli.bench;

import io.fairlead.cli.bench.ChildProcess.Place;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Launches with their waits on a GPU, over C's (rows 000.1 and 000.2).
 *
 * <p>C and each kind of waiter take turns, in processes bound to the very same cores: time slices,
 * and what differs between cores, hit both. A figure is the median over the turns of ours less C's
 * of the same turn; C's own stands beside it.
 *
 * <p>So many carriers have a core more, for the JVM's compilers and collector, and the watchers:
 * they have to run somewhere. C, which has one thread, is bound to the same cores. The rows that
 * are called tight give carriers no such core; nothing is promised there.
 */
final class CudaWaits {
  private static final List<Integer> KERNEL_MICROS = List.of(0, 20, 200);
  private static final List<Integer> CARRIERS = List.of(1, 2, 8);
  private static final List<Integer> TIGHT_CARRIERS = List.of(1, 2);
  private static final double MICROS = 1e-3;
  private static final int TURNS = 3;

  private CudaWaits() {}

  /**
   * Who waits.
   *
   * @param what one phrase: who, and on what
   * @param median the beginning of the ids of the rows at the median
   * @param tail of those at the 99th percentile; null: none
   * @param carriers whose they are, as the setting has it
   * @param options for the JVM, more
   */
  record Waiters(
      String what,
      String median,
      @Nullable String tail,
      Place place,
      String carriers,
      List<String> options,
      Bounds bounds) {
    List<String> ids() {
      List<String> ids = new ArrayList<>();
      KERNEL_MICROS.forEach(micros -> ids.add(id(median, micros)));
      if (tail != null) {
        KERNEL_MICROS.forEach(micros -> ids.add(id(tail, micros)));
      }
      return ids;
    }

    /** By this name the samples of the process are found. */
    private String ours() {
      return median;
    }

    private String theirs() {
      return "c." + median;
    }

    /** Takes turns with C. */
    void measure(Suite.Options options, int scale, CudaRuns runs) throws Exception {
      String[] more = options().toArray(String[]::new);
      for (int turn = 0; turn < (options.quick() ? 1 : TURNS); turn++) {
        runs.measureC(theirs(), "waits", scale, place);
        runs.measure(ours(), CudaWorker.Group.WAITS, scale, place, carriers, more);
      }
    }

    List<Row> rows(CudaRuns runs) {
      List<Row> rows = new ArrayList<>();
      for (int micros : KERNEL_MICROS) {
        List<Samples> ours = runs.of(ours() + " wait." + micros);
        List<Samples> theirs = runs.of(theirs() + " wait." + micros);
        int turns = Math.min(ours.size(), theirs.size());
        if (turns > 0) {
          ours = ours.subList(0, turns);
          theirs = theirs.subList(0, turns);
          rows.add(over(id(median, micros), ours, theirs, false, bounds.must(), bounds.goal()));
          if (tail != null) {
            rows.add(
                over(id(tail, micros), ours, theirs, true, bounds.tailMust(), bounds.tailGoal()));
          }
        }
      }
      return rows;
    }
  }

  /** Microseconds over C's median, and over its 99th percentile; null: none. */
  private record Bounds(
      @Nullable Double must,
      @Nullable Double goal,
      @Nullable Double tailMust,
      @Nullable Double tailGoal) {}

  /** All of them, in the order in which they are measured. */
  static List<Waiters> all() {
    List<Waiters> all = new ArrayList<>();
    for (int carriers : carriers()) {
      all.add(
          waiters(
              String.format("waits of %s, with a core more", carriers(carriers)),
              "own." + carriers(carriers).replace(" ", ""),
              Place.withRoom(carriers),
              "own",
              new Bounds(2.0, 0.5, 10.0, 3.0)));
    }
    for (int carriers : TIGHT_CARRIERS) {
      if (carriers <= ChildProcess.cores(carriers)) {
        all.add(
            waiters(
                String.format("waits of %s on as many cores", carriers(carriers)),
                String.format(
                    "tight.%s_%dcore%s",
                    carriers(carriers).replace(" ", ""), carriers, carriers == 1 ? "" : "s"),
                Place.tight(carriers),
                "own",
                new Bounds(null, null, null, null)));
      }
    }
    all.add(
        waiters(
            "waits on the JDK's carriers",
            "jdk",
            Place.all(),
            "jdk",
            new Bounds(15.0, 5.0, null, null)));
    return all;
  }

  private static Waiters waiters(
      String what, String who, Place place, String carriers, Bounds bounds) {
    return new Waiters(
        what,
        "cuda.wait.parked." + who,
        "cuda.wait.p99." + who,
        place,
        carriers,
        List.of(),
        bounds);
  }

  /** With events in place of tickets, on the most carriers. */
  static Waiters events() {
    return new Waiters(
        "waits with events in place of tickets",
        "cuda.wait.events",
        null,
        most(),
        "own",
        List.of(CudaLongWaits.NO_TICKETS),
        new Bounds(5.0, 2.0, null, null));
  }

  /** The most carriers of any row, with room: what is compared with other libraries has it too. */
  static Place most() {
    return Place.withRoom(carriers().getLast());
  }

  /** As many as can have a core more; one in any case. */
  private static List<Integer> carriers() {
    return CARRIERS.stream()
        .filter(each -> each == 1 || each + 1 <= ChildProcess.cores(Integer.MAX_VALUE))
        .toList();
  }

  private static String carriers(int count) {
    return count + (count == 1 ? " carrier" : " carriers");
  }

  private static String id(String beginning, int micros) {
    return beginning + "." + micros + "us";
  }

  /** What we take more than C: at the median, or at the 99th percentile. */
  static Row over(
      String id,
      List<Samples> ours,
      List<Samples> theirs,
      boolean atTail,
      @Nullable Double must,
      @Nullable Double goal) {
    Samples mine = figures(ours, atTail);
    Samples baseline = figures(theirs, atTail);
    return new Row(
        id,
        mine.minus(baseline).median(),
        "us",
        "lower",
        baseline.median(),
        mine.over(baseline).median(),
        ours.stream().mapToInt(Samples::count).sum(),
        figures(ours, false).median(),
        figures(ours, true).median(),
        must,
        goal);
  }

  /** One for each turn, in microseconds. */
  private static Samples figures(List<Samples> turns, boolean atTail) {
    return Samples.of(
            turns.stream().mapToDouble(each -> atTail ? each.p99() : each.median()).toArray())
        .times(MICROS);
  }
}
