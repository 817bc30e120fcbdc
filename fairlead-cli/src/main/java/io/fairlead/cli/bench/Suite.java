package io.fairlead.cli.bench;

import io.fairlead.cli.Progress;
import java.util.List;

/** One benchmark suite: what it would measure, and the measuring. */
interface Suite {
  /** The name it is run by. */
  String name();

  /** One sentence: what it compares. */
  String about();

  /** The ids of the rows that {@link #run} gives with these options. */
  List<String> ids(Options options);

  /** Whether the size of its problem can be chosen, see {@link Options#grid}. */
  default boolean takesGrid() {
    return false;
  }

  /** Whether it measures only the rows that {@link Options#only} names. */
  default boolean takesOnly() {
    return false;
  }

  /** Measures. Blocks for as long as it takes; with {@code quick} under a minute. */
  List<Row> run(Options options, Progress progress) throws Exception;

  /**
   * What a user may ask of any suite.
   *
   * @param quick fewer and smaller runs: to see that it works, not to quote
   * @param grid points along one side of a generated problem
   * @param only ids of the rows to measure, or what comes before a point in them; none: all rows
   */
  record Options(boolean quick, int grid, List<String> only) {
    public Options {
      only = List.copyOf(only);
    }

    Options(boolean quick, int grid) {
      this(quick, grid, List.of());
    }

    /** Whether that row is asked for. */
    boolean wants(String id) {
      return only.isEmpty() || only.stream().anyMatch(name -> names(name, id));
    }

    /** Whether one of these rows is asked for. */
    boolean wantsAny(List<String> ids) {
      return ids.stream().anyMatch(this::wants);
    }

    /** Whether {@code name} stands for the row: its id, or a beginning of it before a point. */
    static boolean names(String name, String id) {
      return id.equals(name) || id.startsWith(name + ".");
    }
  }
}
