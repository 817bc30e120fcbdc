package io.fairlead.lab.task;

import io.fairlead.fault.DeadlineExceededException;
import io.fairlead.task.Owner;
import io.fairlead.task.Role;
import io.fairlead.task.TaskConfig;
import io.fairlead.task.TaskRuntime;
import io.fairlead.task.WaitMode;
import java.time.Duration;
import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.II_Result;

/**
 * Two that submit against an owner that parks as soon as it is idle: both commands run. The owner
 * is the third party of the race, and one for all states: it parks between most of them.
 */
@JCStressTest
@Outcome(id = "1, 2", expect = Expect.ACCEPTABLE, desc = "Both commands ran.")
@Outcome(expect = Expect.FORBIDDEN, desc = "A wake was lost: a command lies in the queue.")
@State
public class OwnerDoorbellRaceTest {
  private static final Duration LOST = Duration.ofSeconds(20);

  /** No spins, no yields: park at once. */
  private static final TaskConfig EAGER = new TaskConfig(WaitMode.NONBLOCKING, 16, 0, 0, 1_000);

  private static final Owner OWNER = TaskRuntime.open(EAGER).owner("race", Role.OWNER);

  @Actor
  public void first(II_Result result) {
    result.r1 = call(1);
  }

  @Actor
  public void second(II_Result result) {
    result.r2 = call(2);
  }

  private static int call(int value) {
    try {
      return OWNER.call(() -> value).await(LOST);
    } catch (DeadlineExceededException e) {
      return -1;
    }
  }
}
