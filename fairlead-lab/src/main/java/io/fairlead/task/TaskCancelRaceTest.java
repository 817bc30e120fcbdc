package io.fairlead.task;

import io.fairlead.fault.TaskCancelledException;
import io.fairlead.fault.TaskInterruptedException;
import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.I_Result;

/**
 * A cancellation against a task that looks whether it has to stop. The canceller sets a flag, then
 * interrupts the thread: whoever sees the interrupt says why it came. 1: cancelled; 2: interrupted.
 */
@JCStressTest
@Outcome(id = "1", expect = Expect.ACCEPTABLE, desc = "It says that it was cancelled.")
@Outcome(id = "2", expect = Expect.FORBIDDEN, desc = "It says interrupted, and nobody did.")
@Outcome(expect = Expect.FORBIDDEN, desc = "It went on, or threw something else.")
@State
public class TaskCancelRaceTest {
  private final Task task = new Task(Task.root(), "race", 0, Placement.FREE, WaitMode.NONBLOCKING);

  @Actor
  public void cancels() {
    task.cancel(null);
  }

  @Actor
  public void looks(I_Result result) {
    try {
      result.r1 = lookUntilStopped();
    } catch (Exception other) {
      result.r1 = -1;
    }
  }

  private int lookUntilStopped() throws Exception {
    try {
      return task.run(
          () -> {
            while (true) {
              task.checkCancelled();
            }
          });
    } catch (TaskCancelledException stop) {
      return 1;
    } catch (TaskInterruptedException wrong) {
      return 2;
    }
  }
}
