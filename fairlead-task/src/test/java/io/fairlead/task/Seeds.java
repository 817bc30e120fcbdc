package io.fairlead.task;

import java.util.SplittableRandom;
import java.util.stream.LongStream;

/**
 * Seeds for the simulated tests: some that are always the same, and a fresh one, which is printed;
 * many fresh ones with {@code -Dfairlead.long=true}, each in the name of its test. {@code
 * -Dfairlead.seed=N} runs that one alone.
 */
final class Seeds {
  private static final int FIXED = 12;
  private static final int FRESH = Boolean.getBoolean("fairlead.long") ? 60 : 1;

  private Seeds() {}

  static LongStream seeds() {
    Long wanted = Long.getLong("fairlead.seed");
    if (wanted != null) {
      return LongStream.of(wanted);
    }
    long first = System.nanoTime() & 0xffff_ffffL;
    System.out.println("fresh seed: -Dfairlead.seed=" + first);
    LongStream more = new SplittableRandom(first).longs(FRESH - 1).map(seed -> seed & 0xffff_ffffL);
    return LongStream.concat(
        LongStream.rangeClosed(1, FIXED), LongStream.concat(LongStream.of(first), more));
  }
}
