package io.fairlead.cli.bench;

import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import org.jspecify.annotations.Nullable;

/** Rows as a table for a person. */
final class Table {
  private static final List<String> HEAD =
      List.of("id", "value", "unit", "baseline", "ratio", "n", "p50", "p99", "must", "goal", "");

  private Table() {}

  static String of(List<Row> rows) {
    List<List<String>> lines = new ArrayList<>();
    lines.add(HEAD);
    rows.forEach(row -> lines.add(cells(row)));
    int[] widths = widths(lines);
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

  private static int[] widths(List<List<String>> lines) {
    int[] widths = new int[HEAD.size()];
    for (List<String> line : lines) {
      for (int i = 0; i < widths.length; i++) {
        widths[i] = Math.max(widths[i], line.get(i).length());
      }
    }
    return widths;
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
