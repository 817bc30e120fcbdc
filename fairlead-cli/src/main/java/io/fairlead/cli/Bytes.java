package io.fairlead.cli;

import io.fairlead.device.ByteSize;
import java.util.Locale;
import picocli.CommandLine.ITypeConverter;
import picocli.CommandLine.TypeConversionException;

/** Amounts of memory as people write and read them. */
public final class Bytes {
  private static final String[] UNITS = {"B", "KiB", "MiB", "GiB", "TiB"};

  private Bytes() {}

  /** Reads an option such as {@code 512m}. */
  public static final class Converter implements ITypeConverter<Long> {
    /** Made by the command line parser. */
    public Converter() {}

    @Override
    public Long convert(String text) {
      try {
        return ByteSize.parse(text);
      } catch (IllegalArgumentException malformed) {
        throw new TypeConversionException(malformed.getMessage());
      }
    }
  }

  /** The amount with a unit, rounded to three digits. */
  public static String text(long bytes) {
    double amount = bytes;
    int unit = 0;
    while (amount >= 1024 && unit < UNITS.length - 1) {
      amount /= 1024;
      unit++;
    }
    String format = unit == 0 || amount >= 100 ? "%.0f %s" : "%.3g %s";
    return String.format(Locale.ROOT, format, amount, UNITS[unit]);
  }
}
