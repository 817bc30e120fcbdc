package io.fairlead.cli.join;

import io.fairlead.solver.BadInputException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Objects;
import java.util.TreeSet;
import java.util.function.LongConsumer;
import org.jspecify.annotations.Nullable;

/** A table that was read from a CSV file, on the heap. Immutable; any thread. */
final class CsvTable implements Table {
  private static final long PROGRESS_ROWS = 1 << 14;

  private final Path file;
  private final Longs keys;
  private final List<Column> columns;
  private final List<Longs> values;

  private CsvTable(Path file, Longs keys, List<Column> columns, List<Longs> values) {
    this.file = file;
    this.keys = keys;
    this.columns = columns;
    this.values = values;
  }

  /**
   * What is wanted of a file.
   *
   * @param on the column with the keys
   * @param sums the columns to sum, those that the file has; empty: all that have a number in the
   *     first row
   * @param text numbers the keys that are words; null where keys are integers
   */
  record Request(Path file, String on, List<String> sums, @Nullable TextKeys text) {}

  /**
   * Reads a file. Blocks.
   *
   * @param progress told now and then how many rows were read
   * @throws BadInputException naming file, line, what is wrong and what to do
   */
  static CsvTable read(Request request, LongConsumer progress) {
    try (CsvRows rows = CsvRows.open(request.file())) {
      List<String> header = header(rows, request.file());
      return new Reader(request, rows, header).read(progress);
    }
  }

  /** Whether the key of the first row is an integer; what the header has is checked. */
  static boolean hasIntegerKeys(Path file, String on) {
    try (CsvRows rows = CsvRows.open(file)) {
      int key = index(header(rows, file), on, file);
      if (!rows.next() || rows.fields() <= key) {
        return true; // said by whoever reads the file
      }
      FixedPoint number = new FixedPoint();
      return number.read(rows.bytes(), rows.begin(key), rows.end(key))
              != FixedPoint.Verdict.NO_NUMBER
          && number.scale() == 0;
    }
  }

  /** The names of the columns. */
  static List<String> header(Path file) {
    try (CsvRows rows = CsvRows.open(file)) {
      return header(rows, file);
    }
  }

  private static List<String> header(CsvRows rows, Path file) {
    if (!rows.next()) {
      throw new BadInputException(
          file, BadInputException.NO_LINE, "it is empty; expected a line with column names");
    }
    List<String> names = new ArrayList<>();
    for (int field = 0; field < rows.fields(); field++) {
      names.add(rows.text(field).strip());
    }
    return names;
  }

  private static int index(List<String> header, String name, Path file) {
    int at = header.indexOf(name);
    if (at < 0) {
      throw new BadInputException(
          file,
          1,
          "there is no column '"
              + name
              + "'; its columns are: "
              + String.join(", ", header)
              + (header.size() == 1 && header.getFirst().contains(";")
                  ? ". Fields must be separated by commas, not by semicolons"
                  : ""));
    }
    if (header.lastIndexOf(name) != at) {
      throw new BadInputException(
          file, 1, "two columns are named '" + name + "'; rename one of them");
    }
    return at;
  }

  /** What is being read. */
  private static final class Reader {
    private final Request request;
    private final CsvRows rows;
    private final List<String> header;
    private final int keyAt;
    private final Longs keys = new Longs();
    private final List<Building> sums = new ArrayList<>();
    private final FixedPoint number = new FixedPoint();

    Reader(Request request, CsvRows rows, List<String> header) {
      this.request = request;
      this.rows = rows;
      this.header = header;
      this.keyAt = index(header, request.on(), request.file());
      for (String name : new TreeSet<>(request.sums())) {
        if (header.contains(name)) {
          sums.add(new Building(index(header, name, request.file()), name));
        }
      }
    }

    CsvTable read(LongConsumer progress) {
      while (rows.next()) {
        requireFields();
        if (keys.size() == 0 && request.sums().isEmpty()) {
          takeNumbers();
        }
        keys.add(key());
        sums.forEach(this::add);
        if (keys.size() % PROGRESS_ROWS == 0) {
          progress.accept(keys.size());
        }
        if (keys.size() > ROWS_MAX) {
          throw rows.bad(rows.line(), "more than " + ROWS_MAX + " rows; split the file");
        }
      }
      if (keys.size() == 0) {
        throw new BadInputException(
            request.file(),
            BadInputException.NO_LINE,
            "it has no rows; expected at least one below the column names");
      }
      return new CsvTable(
          request.file(),
          keys,
          sums.stream().map(each -> each.column(keys.size())).toList(),
          sums.stream().map(each -> each.values).toList());
    }

    private void requireFields() {
      if (rows.fields() != header.size()) {
        throw rows.bad(
            rows.line(),
            String.format(
                Locale.ROOT,
                "%d %s, but the first line names %d columns; correct or remove the row",
                rows.fields(),
                rows.fields() == 1 ? "field" : "fields",
                header.size()));
      }
    }

    /** Without a word from the user, the columns to sum are those that begin with a number. */
    private void takeNumbers() {
      for (int field = 0; field < header.size(); field++) {
        if (field != keyAt && parse(field) != FixedPoint.Verdict.NO_NUMBER) {
          sums.add(new Building(field, header.get(field)));
        }
      }
    }

    private FixedPoint.Verdict parse(int field) {
      return number.read(rows.bytes(), rows.begin(field), rows.end(field));
    }

    private long key() {
      if (request.text() != null) {
        return Objects.requireNonNull(request.text()).number(rows.text(keyAt));
      }
      FixedPoint.Verdict verdict = parse(keyAt);
      if (verdict != FixedPoint.Verdict.NUMBER || number.scale() != 0) {
        throw rows.bad(
            rows.line(),
            "the key '"
                + shown(keyAt)
                + "' is no 64-bit integer; correct the row, or compare keys as text: --keys text");
      }
      return number.value();
    }

    private void add(Building column) {
      switch (parse(column.at)) {
        case NUMBER -> {
          if (!column.add(number.value(), number.scale())) {
            throw tooLong(column);
          }
        }
        case TOO_LONG -> throw tooLong(column);
        case NO_NUMBER ->
            throw rows.bad(
                rows.line(),
                "column "
                    + column.name
                    + ": '"
                    + shown(column.at)
                    + "' is no number such as 12 or -3.50; correct the row, or name the columns to"
                    + " sum: --sum");
      }
    }

    private BadInputException tooLong(Building column) {
      return rows.bad(
          rows.line(),
          "column "
              + column.name
              + ": "
              + shown(column.at)
              + " has more digits than 64 bits hold with those of the other rows; round the column,"
              + " or leave it out: --sum");
    }

    /** A field in a message, not too long. */
    private String shown(int field) {
      String text = rows.text(field);
      return text.length() <= 40 ? text : text.substring(0, 40) + "...";
    }
  }

  /** A column while it is read: all values are of the largest scale so far. */
  private static final class Building {
    private final int at;
    private final String name;
    private final Longs values = new Longs();
    private int scale;
    private long largest;

    Building(int at, String name) {
      this.at = at;
      this.name = name;
    }

    /** False if it does not fit. */
    boolean add(long value, int scaleOfValue) {
      try {
        if (scaleOfValue > scale) {
          rescale(scaleOfValue);
        }
        long units = Math.multiplyExact(value, powerOfTen(scale - scaleOfValue));
        largest = Math.max(largest, magnitude(units));
        values.add(units);
        return true;
      } catch (ArithmeticException tooLong) {
        return false;
      }
    }

    private void rescale(int wanted) {
      long factor = powerOfTen(wanted - scale);
      largest = Math.multiplyExact(largest, factor);
      for (long i = 0; i < values.size(); i++) {
        values.set(i, Math.multiplyExact(values.get(i), factor));
      }
      scale = wanted;
    }

    private static long magnitude(long units) {
      return units == Long.MIN_VALUE ? Long.MAX_VALUE : Math.abs(units);
    }

    private static long powerOfTen(int exponent) {
      long power = 1;
      for (int i = 0; i < exponent; i++) {
        power *= 10;
      }
      return power;
    }

    Column column(long rows) {
      boolean isWide = Math.multiplyHigh(largest, rows) != 0 || largest * rows < 0;
      return new Column(name, scale, isWide);
    }
  }

  @Override
  public String name() {
    return Objects.requireNonNull(file.getFileName(), "name of a file").toString();
  }

  @Override
  public long rows() {
    return keys.size();
  }

  @Override
  public List<Column> columns() {
    return columns;
  }

  @Override
  public void read(long first, int count, long[] target) {
    int words = words();
    for (int i = 0; i < count; i++) {
      int at = i * words;
      target[at++] = keys.get(first + i);
      for (int c = 0; c < columns.size(); c++) {
        columns.get(c).put(values.get(c).get(first + i), target, at);
        at += columns.get(c).words();
      }
    }
  }
}
