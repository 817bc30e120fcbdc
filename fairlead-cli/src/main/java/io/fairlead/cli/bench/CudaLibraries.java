package io.fairlead.cli.bench;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * What a launch with its wait, and an allocation with its end, take beside other libraries on the
 * same host: ours over theirs. All take turns, each in a process of its own, with its defaults,
 * bound to the same cores.
 */
final class CudaLibraries {
  /** By the name of its samples: the end of a row's id. */
  private static final Map<String, String> ROWS = new LinkedHashMap<>();

  static {
    ROWS.put("wait.0", "wait.0us");
    ROWS.put("wait.20", "wait.20us");
    ROWS.put("alloc", "alloc");
  }

  private CudaLibraries() {}

  static List<String> ids() {
    List<String> ids = new ArrayList<>();
    for (String library : CudaPeer.LIBRARIES) {
      ROWS.values().forEach(row -> ids.add(id(library, row)));
    }
    return ids;
  }

  private static String id(String library, String row) {
    return "cuda.peers." + library + "." + row;
  }

  /** Measures the libraries that are there; the rows of the others say that they are not. */
  static List<Row> measure(
      Suite.Options options, int scale, ChildProcess.Place place, CudaRuns runs) throws Exception {
    Map<String, String> missing = new HashMap<>();
    for (int round = 0; round < (options.quick() ? 1 : 3); round++) {
      runs.measure("like", CudaWorker.Group.LIKE_LIBRARIES, scale, place, "own");
      for (String library : CudaPeer.LIBRARIES) {
        boolean wanted = ROWS.values().stream().anyMatch(row -> options.wants(id(library, row)));
        if (wanted && !missing.containsKey(library)) {
          String why = runs.measureLibrary(library, scale, place);
          if (why != null) {
            missing.put(library, why);
          }
        }
      }
    }
    List<Row> rows = new ArrayList<>();
    for (String library : CudaPeer.LIBRARIES) {
      ROWS.forEach((name, row) -> addRow(id(library, row), library, name, missing, runs, rows));
    }
    return rows;
  }

  /** Over the medians of the rounds; each round's ours and theirs are a pair. */
  private static void addRow(
      String id,
      String library,
      String name,
      Map<String, String> missing,
      CudaRuns runs,
      List<Row> rows) {
    List<Samples> ours = runs.of("like " + name);
    List<Samples> theirs = runs.of(library + " " + name);
    int rounds = Math.min(ours.size(), theirs.size());
    String why = missing.get(library);
    if (rounds > 0) {
      rows.add(
          Row.ratio(id, medians(ours.subList(0, rounds)), medians(theirs.subList(0, rounds)))
              .bounds(1.0, null));
    } else if (why != null) {
      rows.add(Row.missing(id, why));
    }
  }

  private static Samples medians(List<Samples> rounds) {
    return Samples.of(rounds.stream().map(Samples::median).toList());
  }
}
