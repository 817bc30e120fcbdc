package io.fairlead.solver.internal;

import io.fairlead.solver.MatrixFile.Field;
import io.fairlead.solver.MatrixFile.Symmetry;
import java.util.Locale;

/**
 * The banner and the size line of a Matrix Market file.
 *
 * @param coordinate whether entries carry their place; else all are listed, column by column
 * @param entries how many entries follow
 * @param line the line of the sizes
 */
record MtxHeader(
    boolean coordinate,
    Field field,
    Symmetry symmetry,
    long rows,
    long cols,
    long entries,
    long line) {

  private static final String BANNER = "%%MatrixMarket";
  private static final String EXAMPLE = "'%%MatrixMarket matrix coordinate real symmetric'";

  static MtxHeader read(MtxText text) {
    if (text.atEnd()) {
      throw text.bad("the file is empty; expected a first line like " + EXAMPLE);
    }
    // The banner is checked before its line is left, so that complaints name line 1.
    Banner banner = Banner.read(text);
    skipComments(text);
    long rows = text.nextLong("the number of rows", sizeLine(banner));
    long cols = text.nextLong("the number of columns", sizeLine(banner));
    long entries = banner.coordinate ? text.nextLong("the number of entries", sizeLine(banner)) : 0;
    checkSizes(text, banner, rows, cols, entries);
    long listed = banner.coordinate ? entries : listed(banner.symmetry, rows, cols);
    long line = text.line();
    text.requireLineEnd(sizeLine(banner));
    return new MtxHeader(
        banner.coordinate, banner.field, banner.symmetry, rows, cols, listed, line);
  }

  private static void skipComments(MtxText text) {
    while (text.skipToContent() && text.atComment()) {
      text.restOfLine();
    }
    if (text.atEnd()) {
      throw text.bad("the file ends before its size line; expected 'rows columns entries'");
    }
  }

  private static String sizeLine(Banner banner) {
    return banner.coordinate
        ? "a size line 'rows columns entries' of whole numbers"
        : "a size line 'rows columns' of whole numbers";
  }

  private static void checkSizes(MtxText text, Banner banner, long rows, long cols, long entries) {
    if (rows < 0 || cols < 0 || entries < 0) {
      throw text.bad("a negative size; expected " + sizeLine(banner));
    }
    if (rows == 0 || cols == 0) {
      throw text.bad(
          "the matrix is " + rows + " x " + cols + "; expected at least one row and one column");
    }
    if (rows > Integer.MAX_VALUE - 8 || cols > Integer.MAX_VALUE - 8) {
      throw text.bad(
          "the matrix is "
              + size(rows)
              + " x "
              + size(cols)
              + "; expected at most 2,147,483,639 rows and columns");
    }
    if (banner.symmetry != Symmetry.GENERAL && rows != cols) {
      throw text.bad(
          "a "
              + name(banner.symmetry)
              + " matrix of "
              + rows
              + " x "
              + cols
              + "; expected as many rows as columns");
    }
    if (entries > rows * cols) {
      throw text.bad(
          size(entries)
              + " entries in a matrix of "
              + rows
              + " x "
              + cols
              + "; expected at most "
              + rows * cols);
    }
  }

  private static String size(long n) {
    return n == Long.MAX_VALUE ? "more than 2^63" : Long.toString(n);
  }

  private static long listed(Symmetry symmetry, long rows, long cols) {
    return switch (symmetry) {
      case GENERAL -> rows * cols;
      case SYMMETRIC -> rows * (rows + 1) / 2;
      case SKEW_SYMMETRIC -> rows * (rows - 1) / 2;
    };
  }

  static String name(Symmetry symmetry) {
    return symmetry.name().toLowerCase(Locale.ROOT).replace('_', '-');
  }

  /** The first line. */
  private record Banner(boolean coordinate, Field field, Symmetry symmetry) {

    static Banner read(MtxText text) {
      long line = text.line();
      String first = text.restOfLine();
      String[] words = first.trim().split("\\s+", -1);
      if (!words[0].equalsIgnoreCase(BANNER)) {
        throw bad(
            text,
            line,
            "not a Matrix Market file: it begins with "
                + quote(first)
                + "; expected a first line like "
                + EXAMPLE);
      }
      if (words.length != 5 || !words[1].equalsIgnoreCase("matrix")) {
        throw bad(
            text,
            line,
            "the banner " + quote(first) + " is broken; expected five words like " + EXAMPLE);
      }
      Banner banner =
          new Banner(
              coordinate(text, line, words[2]),
              field(text, line, words[3]),
              symmetry(text, line, words[4]));
      if (!banner.coordinate && banner.field == Field.PATTERN) {
        throw bad(text, line, "'array pattern' lists no values; expected array real or integer");
      }
      return banner;
    }

    private static boolean coordinate(MtxText text, long line, String word) {
      return switch (word.toLowerCase(Locale.ROOT)) {
        case "coordinate" -> true;
        case "array" -> false;
        default ->
            throw bad(
                text,
                line,
                "the format " + quote(word) + " is unknown; expected coordinate" + " or array");
      };
    }

    private static Field field(MtxText text, long line, String word) {
      return switch (word.toLowerCase(Locale.ROOT)) {
        case "real", "double" -> Field.REAL;
        case "integer" -> Field.INTEGER;
        case "pattern" -> Field.PATTERN;
        case "complex" ->
            throw bad(
                text,
                line,
                "complex matrices are not supported; expected real, integer or" + " pattern");
        default ->
            throw bad(
                text,
                line,
                "the field " + quote(word) + " is unknown; expected real, integer" + " or pattern");
      };
    }

    private static Symmetry symmetry(MtxText text, long line, String word) {
      return switch (word.toLowerCase(Locale.ROOT)) {
        case "general" -> Symmetry.GENERAL;
        case "symmetric" -> Symmetry.SYMMETRIC;
        case "skew-symmetric" -> Symmetry.SKEW_SYMMETRIC;
        case "hermitian" ->
            throw bad(
                text, line, "hermitian matrices are not supported; expected general or symmetric");
        default ->
            throw bad(
                text,
                line,
                "the symmetry " + quote(word) + " is unknown; expected general or symmetric");
      };
    }

    private static io.fairlead.solver.BadInputException bad(MtxText text, long line, String what) {
      return new io.fairlead.solver.BadInputException(text.file(), line, what);
    }

    private static String quote(String text) {
      String cut = text.length() > 40 ? text.substring(0, 40) + "…" : text;
      return "'" + MtxText.printable(cut) + "'";
    }
  }
}
