package io.fairlead.cli.join;

import java.io.IOException;
import java.io.Writer;
import java.util.List;
import java.util.stream.IntStream;

/** Writes groups as CSV: the key, how many joined rows, the sums; in the order of the keys. */
final class GroupsFile {
  private final JoinInput input;
  private final Groups groups;
  private final List<Sum> sums;

  GroupsFile(JoinInput input, Groups groups) {
    this.input = input;
    this.groups = groups;
    this.sums = Sum.of(input);
  }

  /** Writes all of it; the caller closes. */
  void writeTo(Writer out) throws IOException {
    out.write(quoted(input.keyName()));
    out.write(",count");
    for (Sum sum : sums) {
      out.write(',');
      out.write(quoted(sum.name()));
    }
    out.write('\n');
    int leftWords = input.left().words() - 1;
    for (int group : order()) {
      out.write(quoted(input.key(groups.key(group))));
      out.write(',');
      out.write(Long.toString(groups.joinedRows(group)));
      for (Sum sum : sums) {
        out.write(',');
        out.write(sum.text(groups, group, leftWords));
      }
      out.write('\n');
    }
  }

  /** Words are in their own order, not in that of their numbers. */
  private int[] order() {
    IntStream all = IntStream.range(0, groups.count());
    return input.text() == null
        ? all.toArray()
        : all.boxed()
            .sorted((a, b) -> input.key(groups.key(a)).compareTo(input.key(groups.key(b))))
            .mapToInt(Integer::intValue)
            .toArray();
  }

  private static String quoted(String field) {
    boolean needsQuotes =
        field.isEmpty()
            || field.chars().anyMatch(c -> c == ',' || c == '"' || c == '\n' || c == '\r');
    return needsQuotes ? "\"" + field.replace("\"", "\"\"") + "\"" : field;
  }
}
