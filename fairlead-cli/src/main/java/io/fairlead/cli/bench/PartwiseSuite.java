package io.fairlead.cli.bench;

import io.fairlead.cli.Progress;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;

/** One that takes long, and so hands over the rows of each part once it is measured. */
interface PartwiseSuite extends Suite {
  @Override
  void run(Options options, Progress progress, Consumer<List<Row>> measured) throws Exception;

  @Override
  default List<Row> run(Options options, Progress progress) throws Exception {
    List<Row> rows = new ArrayList<>();
    run(options, progress, rows::addAll);
    return List.copyOf(rows);
  }
}
