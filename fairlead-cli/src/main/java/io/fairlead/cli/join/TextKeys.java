package io.fairlead.cli.join;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Keys that are words: each has a number, from 0 on, which stands for it on the device. Confined to
 * whoever reads the tables; afterwards it only answers, to any thread.
 */
final class TextKeys {
  private final Map<String, Long> numbers = new HashMap<>();
  private final List<String> words = new ArrayList<>();

  /** The number of a word, the same each time. */
  long number(String word) {
    Long known = numbers.putIfAbsent(word, (long) words.size());
    if (known != null) {
      return known;
    }
    words.add(word);
    return words.size() - 1L;
  }

  String word(long number) {
    return words.get((int) number);
  }
}
