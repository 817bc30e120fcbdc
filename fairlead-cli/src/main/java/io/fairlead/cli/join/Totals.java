package io.fairlead.cli.join;

import java.math.BigInteger;

/**
 * What all groups come to, kept while they are not: their number, the joined rows, the sums of all
 * words, and a number that is the same for the same groups in any order. Any thread; synchronized
 * on itself, a leaf.
 */
final class Totals {
  private final int stride;
  private final int leftWords;
  private final Wide joinedRows = new Wide();
  private final Wide[] sums;
  private long groups;
  private long digest;

  Totals(Table left, Table right) {
    stride = Groups.stride(left, right);
    leftWords = left.words() - 1;
    sums = new Wide[stride - Groups.SUMS];
    for (int word = 0; word < sums.length; word++) {
      sums[word] = new Wide();
    }
  }

  /** Adds groups that were not added before. */
  synchronized void add(long[] entries) {
    for (int at = 0; at < entries.length; at += stride) {
      long left = entries[at + Groups.LEFT_ROWS];
      long right = entries[at + Groups.RIGHT_ROWS];
      joinedRows.addProduct(left, right);
      for (int word = 0; word < sums.length; word++) {
        sums[word].addProduct(entries[at + Groups.SUMS + word], word < leftWords ? right : left);
      }
      digest += digest(entries, at);
    }
    groups += entries.length / stride;
  }

  private long digest(long[] entries, int at) {
    long mixed = 0;
    for (int word = 0; word < stride; word++) {
      mixed = KeyHash.of(mixed + entries[at + word] + word);
    }
    return mixed;
  }

  synchronized long groups() {
    return groups;
  }

  synchronized BigInteger joinedRows() {
    return joinedRows.value();
  }

  synchronized long digest() {
    return digest;
  }

  synchronized BigInteger leftSum(int word) {
    return sums[word].value();
  }

  synchronized BigInteger rightSum(int word) {
    return sums[leftWords + word].value();
  }

  /** A sum of 128 bits. */
  private static final class Wide {
    private long upper;
    private long lower;

    void addProduct(long one, long other) {
      long product = one * other;
      long sum = lower + product;
      long carry = Long.compareUnsigned(sum, product) < 0 ? 1 : 0;
      upper += Math.multiplyHigh(one, other) + carry;
      lower = sum;
    }

    BigInteger value() {
      return BigInteger.valueOf(upper)
          .shiftLeft(Long.SIZE)
          .add(new BigInteger(Long.toUnsignedString(lower)));
    }
  }
}
