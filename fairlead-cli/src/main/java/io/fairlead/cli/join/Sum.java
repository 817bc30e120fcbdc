package io.fairlead.cli.join;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.ArrayList;
import java.util.List;
import java.util.function.IntFunction;

/**
 * A sum that the join brings: of a column of one table, over joined rows.
 *
 * @param name {@code sum(left.price)}
 * @param isLeft whose column it is
 * @param word its first word among those of its table
 */
record Sum(String name, boolean isLeft, Column column, int word) {

  /** All of them, those of the left table first. */
  static List<Sum> of(JoinInput input) {
    List<Sum> all = new ArrayList<>();
    add(input.left(), "left", all);
    add(input.right(), "right", all);
    return all;
  }

  private static void add(Table table, String side, List<Sum> to) {
    int word = 0;
    for (Column column : table.columns()) {
      to.add(new Sum("sum(" + side + "." + column.name() + ")", side.equals("left"), column, word));
      word += column.words();
    }
  }

  /** Its value of one group. */
  String text(Groups groups, int group, int leftWords) {
    return text(
        word -> isLeft ? groups.leftSum(group, word) : groups.rightSum(group, leftWords, word));
  }

  /** Its value over all groups. */
  String text(Totals totals) {
    return text(word -> isLeft ? totals.leftSum(word) : totals.rightSum(word));
  }

  private String text(IntFunction<BigInteger> sums) {
    BigInteger second = column.isWide() ? sums.apply(word + 1) : BigInteger.ZERO;
    return new BigDecimal(column.value(sums.apply(word), second), column.scale()).toPlainString();
  }
}
