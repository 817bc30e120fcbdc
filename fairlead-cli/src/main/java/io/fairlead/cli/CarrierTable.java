package io.fairlead.cli;

import io.fairlead.task.CarrierMode;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** What each carrier mode gives, in three columns that fit a terminal. */
final class CarrierTable {
  private static final int WHAT_WIDTH = 22;
  private static final int MODE_WIDTH = 36;
  private static final String GAP = "  ";

  private CarrierTable() {}

  /** With the mode that is on marked, if one is. */
  static List<String> lines(@Nullable CarrierMode on) {
    List<String> lines = new ArrayList<>();
    add(
        lines,
        "",
        head("own carriers", on == CarrierMode.OWN),
        head("the JDK's carriers", on == CarrierMode.JDK));
    for (CarrierMode.Difference each : CarrierMode.differences()) {
      lines.add("");
      add(lines, each.what(), each.own(), each.own().equals(each.jdk()) ? "the same" : each.jdk());
    }
    return lines;
  }

  private static String head(String mode, boolean on) {
    return on ? mode + " (used here)" : mode;
  }

  private static void add(List<String> lines, String what, String own, String jdk) {
    List<String> first = wrap(what, WHAT_WIDTH);
    List<String> second = wrap(own, MODE_WIDTH);
    List<String> third = wrap(jdk, MODE_WIDTH);
    int height = Math.max(first.size(), Math.max(second.size(), third.size()));
    for (int i = 0; i < height; i++) {
      String line =
          pad(cell(first, i), WHAT_WIDTH)
              + GAP
              + pad(cell(second, i), MODE_WIDTH)
              + GAP
              + cell(third, i);
      lines.add(line.stripTrailing());
    }
  }

  private static String cell(List<String> column, int line) {
    return line < column.size() ? column.get(line) : "";
  }

  private static String pad(String text, int width) {
    return text + " ".repeat(Math.max(0, width - text.length()));
  }

  /** At blanks; a word that is longer than a line has one of its own. */
  static List<String> wrap(String text, int width) {
    List<String> lines = new ArrayList<>();
    StringBuilder line = new StringBuilder();
    for (String word : text.split(" ", -1)) {
      if (!line.isEmpty() && line.length() + 1 + word.length() > width) {
        lines.add(line.toString());
        line.setLength(0);
      }
      line.append(line.isEmpty() ? "" : " ").append(word);
    }
    lines.add(line.toString());
    return lines;
  }
}
