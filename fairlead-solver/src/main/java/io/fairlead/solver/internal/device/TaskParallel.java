package io.fairlead.solver.internal.device;

import io.fairlead.runtime.Fairlead;
import io.fairlead.solver.internal.Parallel;
import io.fairlead.task.ForkOptions;
import io.fairlead.task.TaskScope;

/** The setup's loops on tasks: as many pieces as processors, the last on the caller's own. */
public final class TaskParallel implements Parallel {
  /** A piece may take less than it takes until somebody finds it with its parent. */
  private static final ForkOptions AT_ONCE = ForkOptions.DEFAULT.eager(true);

  private final Fairlead fairlead;
  private final int pieces = Runtime.getRuntime().availableProcessors();

  /** Forks in {@code fairlead}. */
  public TaskParallel(Fairlead fairlead) {
    this.fairlead = fairlead;
  }

  @Override
  public void forRange(int n, int minChunk, RangeBody body) {
    int count = Math.min(pieces, n / Math.max(1, minChunk));
    if (count <= 1) {
      SEQUENTIAL.forRange(n, minChunk, body);
      return;
    }
    try (TaskScope<Void> scope = fairlead.scope()) {
      for (int k = 0; k < count - 1; k++) {
        int from = cut(n, k, count);
        int to = cut(n, k + 1, count);
        scope.fork(
            AT_ONCE,
            () -> {
              body.run(from, to);
              return null;
            });
      }
      body.run(cut(n, count - 1, count), n);
      scope.join();
    }
  }

  private static int cut(int n, int k, int count) {
    return (int) ((long) n * k / count);
  }
}
