package io.fairlead.cli.bench;

import io.fairlead.runtime.Fairlead;
import io.fairlead.task.ForkOptions;
import io.fairlead.task.TaskBody;
import io.fairlead.task.TaskScope;

/** The one task of a probe that measures what only a task can do. */
final class ProbeTask {
  private ProbeTask() {}

  /** Runs it, which begins at once, and returns what it returns. Blocks; any thread. */
  static <T> T run(Fairlead fairlead, TaskBody<T> body) {
    try (TaskScope<T> scope = fairlead.scope()) {
      scope.fork(ForkOptions.named("probe").eager(true), body);
      return scope.join().getFirst();
    }
  }
}
