package io.fairlead.cli.bench;

import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.stream.Collectors;

/**
 * How a measuring process, or a baseline in another language, hands samples over: a line {@code
 * samples NAME VALUE...} on standard output.
 *
 * @param name what was measured, one word
 */
record SampleLine(String name, Samples samples) {
  private static final String BEGIN = "samples ";

  /** The line for these values. */
  static String text(String name, double... values) {
    return Arrays.stream(values)
        .mapToObj(value -> String.format(Locale.ROOT, "%.6g", value))
        .collect(Collectors.joining(" ", BEGIN + name + " ", ""));
  }

  /** The samples of a line; none if it is another line, or says of nothing. */
  static Optional<SampleLine> parse(String line) {
    List<String> words = List.of(line.strip().split(" +", -1));
    if (!line.startsWith(BEGIN) || words.size() < 3) {
      return Optional.empty();
    }
    double[] values =
        words.subList(2, words.size()).stream().mapToDouble(Double::parseDouble).toArray();
    return Optional.of(new SampleLine(words.get(1), Samples.of(values)));
  }
}
