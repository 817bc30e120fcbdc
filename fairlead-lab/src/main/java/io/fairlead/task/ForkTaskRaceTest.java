package io.fairlead.task;

import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.II_Result;

/**
 * A child in place, whose task nobody has asked for, against one who asks for it and cancels it:
 * the child does not begin, or is interrupted, and leaves no interrupt behind. r1: 1 if it was
 * stopped; r2: 1 if its thread was still interrupted afterwards.
 */
@JCStressTest
@Outcome(id = "1, 0", expect = Expect.ACCEPTABLE, desc = "It was stopped.")
@Outcome(id = "0, 0", expect = Expect.FORBIDDEN, desc = "The cancellation was lost.")
@Outcome(id = "1, 1", expect = Expect.FORBIDDEN, desc = "The interrupt hit what came after it.")
@Outcome(expect = Expect.FORBIDDEN, desc = "Both.")
@State
public class ForkTaskRaceTest {
  private static final TaskRuntime RUNTIME = TaskRuntime.open(TaskConfig.DEFAULT);
  private static final TaskScope<Integer> SCOPE =
      RUNTIME.scope(ScopeOptions.of(ScopePolicy.COLLECT));
  private static final long LOST_NANOS = 10_000_000_000L;

  static {
    RUNTIME.runners().close(); // nobody but the actors looks at the fork
  }

  private final Fork<Integer> fork =
      new Fork<>(SCOPE, null, ForkTaskRaceTest::untilInterrupted, null, true);

  private static Integer untilInterrupted() throws InterruptedException {
    long start = System.nanoTime();
    while (System.nanoTime() - start < LOST_NANOS) {
      if (Thread.interrupted()) {
        throw new InterruptedException("as it should be");
      }
    }
    return 0;
  }

  @Actor
  public void parent(II_Result result) {
    Execution execution = new Execution(Task.root(), Thread.currentThread());
    if (fork.claim()) {
      fork.runInPlace(execution);
    }
    result.r1 = fork.state() == Fork.State.CANCELLED ? 1 : 0;
    result.r2 = Thread.interrupted() ? 1 : 0;
  }

  @Actor
  public void canceller() {
    fork.task().cancel(null);
  }
}
