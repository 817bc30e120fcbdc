package io.fairlead.task;

import java.util.stream.LongStream;

/**
 * Seeds for the simulated tests: some that are always the same, and a fresh one, which is printed.
 * {@code -Dfairlead.seed=N} runs that one alone.
 */
final class Seeds {
  private static final int FIXED = 12;

  private Seeds() {}

  static LongStream seeds() {
    Long wanted = Long.getLong("fairlead.seed");
    if (wanted != null) {
      return LongStream.of(wanted);
    }
    long fresh = System.nanoTime() & 0xffff_ffffL;
    System.out.println("fresh seed: -Dfairlead.seed=" + fresh);
    return LongStream.concat(LongStream.rangeClosed(1, FIXED), LongStream.of(fresh));
  }
}
