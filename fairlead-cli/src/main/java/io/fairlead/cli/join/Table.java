package io.fairlead.cli.join;

import java.util.List;

/**
 * A table as the join sees it: rows of 64-bit words, first the key, then the words of each summed
 * {@link Column}. Immutable; any thread.
 */
interface Table {
  /** Rows are numbered by ints on the device. */
  long ROWS_MAX = Integer.MAX_VALUE - 8L;

  /** For people. */
  String name();

  long rows();

  List<Column> columns();

  /**
   * Puts {@code count} rows from {@code first} on into {@code target}, one after the other.
   *
   * @param target has room for {@code count * words()}
   */
  void read(long first, int count, long[] target);

  /** Words of a row. */
  default int words() {
    return 1 + columns().stream().mapToInt(Column::words).sum();
  }

  /** Bytes of a row on the device. */
  default long rowBytes() {
    return (long) words() * Long.BYTES;
  }

  /** Bytes of all rows on the device. */
  default long bytes() {
    return rows() * rowBytes();
  }
}
