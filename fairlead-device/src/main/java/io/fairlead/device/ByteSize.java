package io.fairlead.device;

import java.util.Locale;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Sizes as people read and write them: {@code 1048576}, {@code 512m}, {@code 4 GiB}. The one reader
 * of all settings and options. Any thread; never blocks.
 */
public final class ByteSize {
  private static final Pattern SIZE = Pattern.compile("(\\d{1,19})\\s*([kmgt]?)(i?b)?");
  private static final String UNITS = "kmgt";

  private ByteSize() {}

  /**
   * The number of bytes, at least 1; units are powers of 1024.
   *
   * @throws IllegalArgumentException saying what a size looks like
   */
  public static long parse(String text) {
    return positive(parseOrNone(text), text);
  }

  /** As {@link #parse}, where 0 means something: nothing at all. */
  public static long parseOrNone(String text) {
    Matcher matcher = SIZE.matcher(text.strip().toLowerCase(Locale.ROOT));
    if (matcher.matches()) {
      int shift = 10 * (UNITS.indexOf(matcher.group(2)) + 1);
      // An empty unit is found at 0, as k is.
      long unit = matcher.group(2).isEmpty() ? 1 : 1L << shift;
      try {
        return Math.multiplyExact(Long.parseLong(matcher.group(1)), unit);
      } catch (ArithmeticException | NumberFormatException tooLarge) {
        throw new IllegalArgumentException("'" + text + "' is more bytes than there can be");
      }
    }
    throw new IllegalArgumentException(
        "'" + text + "' is no size; write bytes, or a number with k, m, g or t: 512m, 4g");
  }

  /** For people: {@code 512 B}, {@code 1.5 MiB}. */
  public static String text(long bytes) {
    if (bytes < 1024) {
      return bytes + " B";
    }
    int unit = Math.min((63 - Long.numberOfLeadingZeros(bytes)) / 10, UNITS.length());
    double scaled = (double) bytes / (1L << (10 * unit));
    char letter = Character.toUpperCase(UNITS.charAt(unit - 1));
    return String.format(Locale.ROOT, "%.1f %ciB", scaled, letter);
  }

  private static long positive(long bytes, String text) {
    if (bytes == 0) {
      throw new IllegalArgumentException(
          "'" + text + "' is no memory at all; leave it out for all");
    }
    return bytes;
  }
}
