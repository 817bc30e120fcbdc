package io.fairlead.cli.bench;

import io.fairlead.cli.Progress;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;

/**
 * What a suite measures together, in this process. One that fails is told to the person who waits,
 * and its rows have no figure; the others go on.
 *
 * @param what is measured, in a few words
 * @param ids the rows that it gives
 */
record Part(String what, List<String> ids, Measure measure) {
  /** Measures; a row that is left out has no figure. */
  interface Measure {
    List<Row> run() throws Exception;
  }

  /** The ids of all rows, in order. */
  static List<String> ids(List<Part> parts) {
    return parts.stream().flatMap(part -> part.ids().stream()).toList();
  }

  /**
   * Measures what is asked for, and hands over the rows of each part: one for each id, in order.
   */
  static void run(
      List<Part> parts, Suite.Options options, Progress progress, Consumer<List<Row>> measured)
      throws Exception {
    for (Part part : parts) {
      if (options.wantsAny(part.ids())) {
        progress.done(part.what());
        measured.accept(part.run(options, progress));
      }
    }
  }

  private List<Row> run(Suite.Options options, Progress progress) throws Exception {
    List<Row> measured = List.of();
    String why = "not measured";
    try {
      measured = measure.run();
    } catch (RuntimeException failed) {
      progress.done(what + " failed: " + failed);
      why = "failed";
    }
    List<Row> rows = new ArrayList<>();
    for (String id : ids) {
      if (options.wants(id)) {
        rows.add(find(id, measured, why));
      }
    }
    return rows;
  }

  private static Row find(String id, List<Row> measured, String why) {
    return measured.stream()
        .filter(row -> row.id().equals(id))
        .findFirst()
        .orElseGet(() -> Row.missing(id, why));
  }
}
