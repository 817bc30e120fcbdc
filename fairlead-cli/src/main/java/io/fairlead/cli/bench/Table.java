package io.fairlead.cli.bench;

import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import org.jspecify.annotations.Nullable;

/**
 * Rows as a table for a person, which may come one after the other. Confined to one thread.
 *
 * <p>Columns are as wide as the first rows need, and as figures usually are: a wider one that comes
 * later stands out.
 */
final class Table {
  private static final List<String> HEAD =
      List.of("id", "value", "unit", "baseline", "ratio", "n", "p50", "p99", "must", "goal", "");

  private static final int FIGURE_WIDTH = 8;

  private final int[] widths = new int[HEAD.size()];
  private boolean begun;

  /** A table for rows with these ids. */
  Table(List<String> ids) {
    for (int i = 0; i < widths.length; i++) {
      widths[i] = Math.max(FIGURE_WIDTH, HEAD.get(i).length());
    }
    ids.forEach(id -> widths[0] = Math.max(widths[0], id.length()));
  }

  static String of(List<Row> rows) {
    return new Table(List.of()).add(rows);
  }

  /** The lines of some more rows, below the head if they are the first. */
  String add(List<Row> rows) {
    List<List<String>> lines = new ArrayList<>();
    if (!begun) {
      lines.add(HEAD);
    }
    rows.forEach(row -> lines.add(cells(row)));
    if (!begun) {
      widen(lines);
    }
    begun = true;
    StringBuilder out = new StringBuilder();
    lines.forEach(line -> append(line, widths, out));
    return out.toString();
  }

  private static List<String> cells(Row row) {
    return List.of(
        row.id(),
        number(row.value()),
        row.unit(),
        number(row.baseline()),
        number(row.ratio()),
        Integer.toString(row.n()),
        number(row.p50()),
        number(row.p99()),
        bound(row, row.must()),
        bound(row, row.goal()),
        row.verdict());
  }

  private static String bound(Row row, @Nullable Double bound) {
    return bound == null ? "-" : (row.better().equals("lower") ? "<= " : ">= ") + number(bound);
  }

  private static String number(@Nullable Double value) {
    return value == null || value.isNaN() ? "-" : String.format(Locale.ROOT, "%.4g", value);
  }

  private void widen(List<List<String>> lines) {
    for (List<String> line : lines) {
      for (int i = 0; i < widths.length; i++) {
        widths[i] = Math.max(widths[i], line.get(i).length());
      }
    }
  }

  private static void append(List<String> line, int[] widths, StringBuilder out) {
    StringBuilder text = new StringBuilder();
    for (int i = 0; i < widths.length; i++) {
      String form = i == 0 || i == 2 || i == widths.length - 1 ? "%-" : "%";
      text.append(String.format(form + Math.max(1, widths[i]) + "s  ", line.get(i)));
    }
    out.append(text.toString().stripTrailing()).append('\n');
  }
}
