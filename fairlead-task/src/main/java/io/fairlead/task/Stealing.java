package io.fairlead.task;

import java.util.Locale;

/**
 * Who begins what lies in a deque. MIXED but for tests, which run one suite under all three:
 * results must not depend on it. The system property {@code fairlead.forks} says it for a whole
 * process.
 */
enum Stealing {
  /** Runners take what a free processor can run. */
  MIXED,
  /** Runners take only from those that wait for something of ours: all else runs in place. */
  NEVER,
  /** Nothing runs in place. */
  ALWAYS;

  static Stealing fromProperty() {
    String text = System.getProperty("fairlead.forks");
    return text == null ? MIXED : valueOf(text.toUpperCase(Locale.ROOT));
  }
}
