package io.fairlead.cli.join;

import java.math.BigInteger;
import java.util.Arrays;
import java.util.List;

/**
 * The result: for each key that both tables have, how many rows of each have it, and the sums of
 * each table's words over them. All integers, so two results are equal or one is wrong.
 *
 * <p>An entry is {@code key, left rows, right rows, sums of the left words, sums of the right
 * words}. A joined row is a pair, so there are left times right of them, and each left value counts
 * once for each right row. Immutable; entries are in the order of their keys.
 */
final class Groups {
  static final int KEY = 0;
  static final int LEFT_ROWS = 1;
  static final int RIGHT_ROWS = 2;

  /** Where the sums begin. */
  static final int SUMS = 3;

  private final long[] entries;
  private final int stride;

  private Groups(long[] entries, int stride) {
    this.entries = entries;
    this.stride = stride;
  }

  /** Words of an entry for tables with so many words. */
  static int stride(Table left, Table right) {
    return SUMS + left.words() - 1 + right.words() - 1;
  }

  /**
   * Puts together what has disjoint keys.
   *
   * @throws IllegalArgumentException if it is more than a Java array holds
   */
  static Groups merged(List<long[]> parts, int stride) {
    long words = parts.stream().mapToLong(part -> part.length).sum();
    if (words > Integer.MAX_VALUE - 8) {
      throw new IllegalArgumentException(
          words / stride + " groups are more than can be kept; leave out --out and --check");
    }
    long[] keys = new long[(int) (words / stride)];
    int count = 0;
    for (long[] part : parts) {
      for (int at = 0; at < part.length; at += stride) {
        keys[count++] = part[at + KEY];
      }
    }
    Arrays.sort(keys);
    long[] entries = new long[(int) words];
    for (long[] part : parts) {
      for (int at = 0; at < part.length; at += stride) {
        int place = Arrays.binarySearch(keys, part[at + KEY]);
        System.arraycopy(part, at, entries, place * stride, stride);
      }
    }
    return new Groups(entries, stride);
  }

  int count() {
    return entries.length / stride;
  }

  long key(int group) {
    return entries[group * stride + KEY];
  }

  /** How many joined rows the group has; rows of tables are counted by ints, so it fits. */
  long joinedRows(int group) {
    return entries[group * stride + LEFT_ROWS] * entries[group * stride + RIGHT_ROWS];
  }

  /** The sum of a word of the left table over the joined rows. */
  BigInteger leftSum(int group, int word) {
    return product(group, SUMS + word, RIGHT_ROWS);
  }

  /** The sum of a word of the right table over the joined rows. */
  BigInteger rightSum(int group, int leftWords, int word) {
    return product(group, SUMS + leftWords + word, LEFT_ROWS);
  }

  private BigInteger product(int group, int sum, int times) {
    return BigInteger.valueOf(entries[group * stride + sum])
        .multiply(BigInteger.valueOf(entries[group * stride + times]));
  }

  /** The key of the first group in which they differ, in words; empty if they are the same. */
  String difference(Groups other) {
    int at = Arrays.mismatch(entries, other.entries);
    if (at < 0) {
      return "";
    }
    return "group "
        + at / stride
        + " is "
        + describe(at / stride)
        + " in one and "
        + other.describe(at / stride)
        + " in the other";
  }

  private String describe(int group) {
    return group < count()
        ? Arrays.toString(Arrays.copyOfRange(entries, group * stride, (group + 1) * stride))
        : "missing";
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof Groups groups && Arrays.equals(entries, groups.entries);
  }

  @Override
  public int hashCode() {
    return Arrays.hashCode(entries);
  }

  @Override
  public String toString() {
    return count() + " groups";
  }
}
