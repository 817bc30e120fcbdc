package io.fairlead.cli.join;

import io.fairlead.cli.Progress;
import io.fairlead.solver.BadInputException;
import java.nio.file.Path;
import java.util.List;
import java.util.Locale;
import org.jspecify.annotations.Nullable;

/**
 * The two tables.
 *
 * @param keyName the column that they are joined on
 * @param text the words that keys stand for; null where they are integers
 */
record JoinInput(Table left, Table right, String keyName, @Nullable TextKeys text) {
  /** Of a generated table, each key has so many rows. */
  private static final int ROWS_PER_KEY = 4;

  /** So that the two tables have other rows. */
  private static final long RIGHT_SEED = 0x5DEE_CE66_DL;

  /**
   * Reads what the request names, or says what is generated. Blocks.
   *
   * @throws BadInputException naming file, line and what to do
   */
  static JoinInput of(JoinRequest request, Progress progress) {
    JoinRequest.Files files = request.files();
    return files == null ? generated(request) : read(files, progress);
  }

  private static JoinInput generated(JoinRequest request) {
    return new JoinInput(
        generated("left", request, request.seed(), new Column("price", 2, false)),
        generated("right", request, request.seed() ^ RIGHT_SEED, new Column("quantity", 0, false)),
        "key",
        null);
  }

  private static Table generated(String name, JoinRequest request, long seed, Column value) {
    long keys = Math.max(1, request.rows() / ROWS_PER_KEY);
    return new GeneratedTable(name, request.rows(), keys, request.skew(), seed, value);
  }

  private static JoinInput read(JoinRequest.Files files, Progress progress) {
    requireSums(files);
    boolean isText =
        switch (files.keys()) {
          case TEXT -> true;
          case INTEGER -> false;
          case AUTO -> !CsvTable.hasIntegerKeys(files.left(), files.on());
        };
    TextKeys text = isText ? new TextKeys() : null;
    return new JoinInput(
        read(files.left(), files, text, progress),
        read(files.right(), files, text, progress),
        files.on(),
        text);
  }

  private static Table read(
      Path file, JoinRequest.Files files, @Nullable TextKeys text, Progress progress) {
    CsvTable.Request request = new CsvTable.Request(file, files.on(), files.sums(), text);
    CsvTable table =
        CsvTable.read(
            request,
            rows ->
                progress.update(
                    () -> String.format(Locale.ROOT, "reading %s: %,d rows", file, rows)));
    progress.done(String.format(Locale.ROOT, "read %s: %,d rows", table.name(), table.rows()));
    return table;
  }

  private static void requireSums(JoinRequest.Files files) {
    List<String> left = CsvTable.header(files.left());
    List<String> right = CsvTable.header(files.right());
    for (String name : files.sums()) {
      if (!left.contains(name) && !right.contains(name)) {
        throw new BadInputException(
            files.right(),
            1,
            "neither file has the column '"
                + name
                + "' of --sum; the columns are: "
                + String.join(", ", left)
                + "; and: "
                + String.join(", ", right));
      }
    }
  }

  /** A key as it was in the file. */
  String key(long key) {
    return text == null ? Long.toString(key) : text.word(key);
  }

  /** Bytes of both tables on the device. */
  long workingSetBytes() {
    return left.bytes() + right.bytes();
  }

  long rows() {
    return left.rows() + right.rows();
  }
}
