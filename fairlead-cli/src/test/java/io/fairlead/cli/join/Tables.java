package io.fairlead.cli.join;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** Tables for tests, and the join as its definition has it: all pairs. */
final class Tables {
  private static final Column VALUE = new Column("value", 0, false);

  private Tables() {}

  static Table generated(String name, long rows, long keys, double skew, long seed) {
    return new GeneratedTable(name, rows, keys, skew, seed, VALUE);
  }

  /** Rows as they stand there: the key, then the words. */
  static Table of(int words, long... rows) {
    return new Given(words, rows);
  }

  @SuppressWarnings("ArrayRecordComponent") // never compared
  private record Given(int words, long[] all) implements Table {
    @Override
    public String name() {
      return "given";
    }

    @Override
    public long rows() {
      return all.length / words;
    }

    @Override
    public List<Column> columns() {
      List<Column> columns = new ArrayList<>();
      for (int word = 1; word < words; word++) {
        columns.add(VALUE);
      }
      return columns;
    }

    @Override
    public void read(long first, int count, long[] target) {
      System.arraycopy(all, (int) first * words, target, 0, count * words);
    }
  }

  /** Entries as {@link Groups} has them, by counting each pair of rows on its own. */
  static List<String> pairs(Table left, Table right) {
    long[] leftRows = rows(left);
    long[] rightRows = rows(right);
    Map<Long, long[]> groups = new TreeMap<>();
    for (int l = 0; l < leftRows.length; l += left.words()) {
      for (int r = 0; r < rightRows.length; r += right.words()) {
        if (leftRows[l] == rightRows[r]) {
          long[] sums =
              groups.computeIfAbsent(
                  leftRows[l], _ -> new long[1 + left.words() - 1 + right.words() - 1]);
          sums[0]++;
          addTo(sums, 1, leftRows, l, left.words());
          addTo(sums, left.words(), rightRows, r, right.words());
        }
      }
    }
    return groups.entrySet().stream()
        .map(group -> group.getKey() + " " + java.util.Arrays.toString(group.getValue()))
        .toList();
  }

  private static void addTo(long[] sums, int to, long[] rows, int row, int words) {
    for (int word = 1; word < words; word++) {
      sums[to + word - 1] += rows[row + word];
    }
  }

  private static long[] rows(Table table) {
    long[] rows = new long[(int) table.rows() * table.words()];
    table.read(0, (int) table.rows(), rows);
    return rows;
  }

  /** The same of a result. */
  static List<String> pairs(Groups groups, Table left, Table right) {
    List<String> all = new ArrayList<>();
    for (int group = 0; group < groups.count(); group++) {
      List<String> sums = new ArrayList<>(List.of(Long.toString(groups.joinedRows(group))));
      for (int word = 0; word < left.words() - 1; word++) {
        sums.add(groups.leftSum(group, word).toString());
      }
      for (int word = 0; word < right.words() - 1; word++) {
        sums.add(groups.rightSum(group, left.words() - 1, word).toString());
      }
      all.add(groups.key(group) + " " + sums);
    }
    return all;
  }
}
