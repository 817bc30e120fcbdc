package io.fairlead.cli.torture;

import java.util.Locale;
import java.util.concurrent.atomic.LongAdder;

/** What was done so far. Any thread. */
final class Tally {
  final LongAdder steps = new LongAdder();
  final LongAdder checks = new LongAdder();
  final LongAdder messages = new LongAdder();
  final LongAdder interrupted = new LongAdder();
  final LongAdder cancelled = new LongAdder();
  final LongAdder refused = new LongAdder();
  final LongAdder spills = new LongAdder();
  final LongAdder filesBytes = new LongAdder();
  final LongAdder rollbacks = new LongAdder();
  final LongAdder splits = new LongAdder();

  void add(Tally other) {
    steps.add(other.steps.sum());
    checks.add(other.checks.sum());
    messages.add(other.messages.sum());
    interrupted.add(other.interrupted.sum());
    cancelled.add(other.cancelled.sum());
    refused.add(other.refused.sum());
    spills.add(other.spills.sum());
    filesBytes.add(other.filesBytes.sum());
    rollbacks.add(other.rollbacks.sum());
    splits.add(other.splits.sum());
  }

  @Override
  public String toString() {
    return String.format(
        Locale.ROOT,
        "%,d steps, %,d contents checked, %,d messages; %,d spills, %,d MiB to files; %,d rollbacks,"
            + " %,d splits; %,d interrupted, %,d cancelled, %,d refused on purpose",
        steps.sum(),
        checks.sum(),
        messages.sum(),
        spills.sum(),
        filesBytes.sum() >> 20,
        rollbacks.sum(),
        splits.sum(),
        interrupted.sum(),
        cancelled.sum(),
        refused.sum());
  }
}
