package io.fairlead.task;

import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.II_Result;

/**
 * A frame that is forked, joined and forked again while a runner tries to take it: whatever fork
 * the runner gets, it reads that fork's argument, and the owner gets that fork's result.
 */
@JCStressTest
@Outcome(id = "0, 3", expect = Expect.ACCEPTABLE, desc = "Both ran in place.")
@Outcome(id = "1, 3", expect = Expect.ACCEPTABLE, desc = "The runner had the first fork.")
@Outcome(id = "2, 3", expect = Expect.ACCEPTABLE, desc = "The runner had the second fork.")
@Outcome(expect = Expect.FORBIDDEN, desc = "An argument or result of another fork was read.")
@State
public class FrameReuseRaceTest {
  private static final int SPINS = 5;
  private static final TaskRuntime RUNTIME = TaskRuntime.open(TaskConfig.DEFAULT);
  private static final Forks FORKS =
      new Forks(RUNTIME.runners(), new Execution(Task.root(), null), null);

  private final LongFrame frame = frame();

  static LongFrame frame() {
    return new LongFrame(FORKS, 0);
  }

  @Actor
  public void owner(II_Result result) {
    result.r2 = (int) (forkAndJoin(1) + forkAndJoin(2));
  }

  private long forkAndJoin(long argument) {
    frame.argument = argument;
    frame.result = -10;
    frame.ready();
    for (int i = 0; i < SPINS; i++) {
      Thread.onSpinWait(); // so that the runner has it now and then
    }
    if (frame.claim()) {
      return frame.argument;
    }
    frame.awaitDone();
    frame.finish();
    return frame.result;
  }

  @Actor
  public void runner(II_Result result) {
    for (int i = 0; i < 40 * SPINS; i++) {
      long number = frame.waiting();
      if (frame.take(number)) {
        frame.result = frame.argument;
        result.r1 = number / JoinFrame.NEXT == frame.argument ? (int) frame.argument : -1;
        frame.done();
        return;
      }
      Thread.onSpinWait();
    }
  }
}
