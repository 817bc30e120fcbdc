package io.fairlead.cli;

import io.fairlead.solver.Preconditioner;
import io.fairlead.task.WaitMode;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import picocli.CommandLine;
import picocli.CommandLine.ITypeConverter;
import picocli.CommandLine.TypeConversionException;

/** Numbers and choices on the command line, and what is said of those that are none. */
final class Words {
  private Words() {}

  static void register(CommandLine line) {
    line.registerConverter(int.class, Words::wholeNumber);
    line.registerConverter(Integer.class, Words::wholeNumber);
    line.registerConverter(double.class, Words::number);
    line.registerConverter(Preconditioner.class, choice(Preconditioner.values()));
    line.registerConverter(WaitMode.class, choice(WaitMode.values()));
  }

  private static int wholeNumber(String text) {
    try {
      return Integer.parseInt(text);
    } catch (NumberFormatException none) {
      throw new TypeConversionException(
          "expected a whole number of reasonable size, not '" + text + "'");
    }
  }

  private static double number(String text) {
    try {
      return Double.parseDouble(text);
    } catch (NumberFormatException none) {
      throw new TypeConversionException(
          "expected a number, such as 0.5 or 1e-8, not '" + text + "'");
    }
  }

  private static <E extends Enum<E>> ITypeConverter<E> choice(E[] values) {
    return text ->
        Arrays.stream(values)
            .filter(value -> value.name().equalsIgnoreCase(text))
            .findFirst()
            .orElseThrow(
                () ->
                    new TypeConversionException(
                        "expected " + either(values) + ", not '" + text + "'"));
  }

  private static String either(Enum<?>[] values) {
    List<String> words =
        Arrays.stream(values).map(value -> value.name().toLowerCase(Locale.ROOT)).toList();
    return String.join(", ", words.subList(0, words.size() - 1)) + " or " + words.getLast();
  }
}
