package io.fairlead.cli.join;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** The same join in plain Java on the heap, to check the device's by: one map, one thread. */
final class PlainJoin {
  private static final int BATCH_ROWS = 4096;

  private PlainJoin() {}

  static Groups of(Table left, Table right) {
    Map<Long, long[]> entries = new HashMap<>();
    int stride = Groups.stride(left, right);
    add(left, Groups.LEFT_ROWS, Groups.SUMS, stride, entries);
    add(right, Groups.RIGHT_ROWS, Groups.SUMS + left.words() - 1, stride, entries);
    List<long[]> matched = new ArrayList<>();
    for (long[] entry : entries.values()) {
      if (entry[Groups.LEFT_ROWS] > 0 && entry[Groups.RIGHT_ROWS] > 0) {
        matched.add(entry);
      }
    }
    return Groups.merged(matched, stride);
  }

  private static void add(
      Table table, int rowsAt, int sumsAt, int stride, Map<Long, long[]> entries) {
    int words = table.words();
    long[] batch = new long[BATCH_ROWS * words];
    for (long first = 0; first < table.rows(); first += BATCH_ROWS) {
      int count = (int) Math.min(BATCH_ROWS, table.rows() - first);
      table.read(first, count, batch);
      for (int row = 0; row < count; row++) {
        long key = batch[row * words];
        long[] entry = entries.computeIfAbsent(key, _ -> new long[stride]);
        entry[Groups.KEY] = key;
        entry[rowsAt]++;
        for (int word = 1; word < words; word++) {
          entry[sumsAt + word - 1] += batch[row * words + word];
        }
      }
    }
  }
}
