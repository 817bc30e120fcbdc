package io.fairlead.cli.bench;

import java.util.ArrayList;
import java.util.List;

/**
 * Waits beside many others on a GPU: with events in place of tickets, beside long waits, and what
 * long waits cost.
 */
final class CudaLongWaits {
  private static final double MICROS = 1e-3;
  private static final double MILLIS = 1e-6;
  private static final double PERCENT = 100;

  /** The signals of all streams are events. */
  static final String NO_TICKETS = "-Dfairlead.cuda.tickets=0";

  private static final String BESIDE = "cuda.wait.hol";

  private CudaLongWaits() {}

  static List<String> ids() {
    List<String> ids = new ArrayList<>(List.of(BESIDE, BESIDE + ".p99"));
    for (String carriers : List.of("own", "jdk")) {
      ids.add(core(carriers));
      ids.add(late(carriers));
    }
    return ids;
  }

  private static String core(String carriers) {
    return "cuda.wait.cpu." + carriers;
  }

  private static String late(String carriers) {
    return "cuda.wait.cpu." + carriers + ".late";
  }

  static void measure(Suite.Options options, int scale, CudaRuns runs) throws Exception {
    if (options.wantsAny(List.of(BESIDE, BESIDE + ".p99"))) {
      runs.measure("beside", CudaWorker.Group.BESIDE_LONG, scale, ChildProcess.Place.all(), "own");
    }
    for (String carriers : List.of("own", "jdk")) {
      if (options.wantsAny(List.of(core(carriers), late(carriers)))) {
        runs.measure(
            carriers + ".core", CudaWorker.Group.LONG, scale, ChildProcess.Place.all(), carriers);
      }
    }
  }

  static List<Row> rows(CudaRuns runs) {
    List<Row> rows = new ArrayList<>();
    for (Samples waited : runs.of("beside hol.waited")) {
      for (Samples alone : runs.of("beside hol.alone")) {
        rows.add(more(BESIDE, waited, alone.median(), waited.median()).bounds(20.0, 5.0));
        rows.add(more(BESIDE + ".p99", waited, alone.p99(), waited.p99()));
      }
    }
    for (String carriers : List.of("own", "jdk")) {
      for (Samples share : runs.of(carriers + ".core core.share")) {
        Samples percent = share.times(PERCENT);
        rows.add(Row.median(core(carriers), "% of a core", "lower", percent).bounds(5.0, 1.0));
      }
      for (Samples nanos : runs.of(carriers + ".core core.late")) {
        rows.add(Row.median(late(carriers), "ms", "lower", nanos.times(MILLIS)));
      }
    }
    return rows;
  }

  /** How much longer a short wait takes beside long waits than beside the same work alone. */
  private static Row more(String id, Samples waited, double alone, double beside) {
    Samples micros = waited.times(MICROS);
    return new Row(
        id,
        (beside - alone) * MICROS,
        "us",
        "lower",
        alone * MICROS,
        beside / alone,
        waited.count(),
        micros.median(),
        micros.p99(),
        null,
        null);
  }
}
