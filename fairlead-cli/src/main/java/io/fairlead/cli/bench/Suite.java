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

  /** Measures. Blocks for as long as it takes; with {@code quick} under a minute. */
  List<Row> run(Options options, Progress progress) throws Exception;

  /**
   * What a user may ask of any suite.
   *
   * @param quick fewer and smaller runs: to see that it works, not to quote
   * @param grid points along one side of a generated problem
   */
  record Options(boolean quick, int grid) {}
}
