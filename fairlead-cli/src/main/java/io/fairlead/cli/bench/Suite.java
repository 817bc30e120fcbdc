package io.fairlead.cli.bench;

import io.fairlead.cli.Progress;
import io.fairlead.runtime.FairleadConfig;
import java.nio.file.Path;
import java.util.List;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

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

  /** Whether it measures on a device that can be chosen, see {@link Options#device}. */
  default boolean takesDevice() {
    return false;
  }

  /** Whether it starts ranks itself, and so must not be one of a launcher's. */
  default boolean startsRanks() {
    return false;
  }

  /** Measures. Blocks for as long as it takes; with {@code quick} under a minute. */
  List<Row> run(Options options, Progress progress) throws Exception;

  /**
   * Measures, and hands over rows as soon as they are there, in the order of {@link #ids}: a run
   * that is cut has given what it had. On the calling thread.
   */
  default void run(Options options, Progress progress, Consumer<List<Row>> measured)
      throws Exception {
    measured.accept(run(options, progress));
  }

  /**
   * What a user may ask of any suite.
   *
   * @param quick fewer and smaller runs: to see that it works, not to quote
   * @param grid points along one side of a generated problem
   * @param only ids of the rows to measure, or what comes before a point in them; none: all rows
   * @param device {@code host}, {@code cuda}, or {@code auto} for the best one there is
   * @param directory where files are written that are measured; null: the temporary folder
   */
  record Options(
      boolean quick, int grid, List<String> only, String device, @Nullable Path directory) {
    public Options {
      only = List.copyOf(only);
    }

    Options(boolean quick, int grid, List<String> only) {
      this(quick, grid, only, FairleadConfig.AUTO, null);
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
