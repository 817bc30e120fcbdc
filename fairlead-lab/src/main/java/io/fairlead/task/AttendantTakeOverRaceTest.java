package io.fairlead.task;

import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Arbiter;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.II_Result;

/**
 * A carrier goes idle and takes over from the attendant, which at the same time goes to run
 * something, or rests: the role is the newcomer's. First: whether it has it in the end. Second:
 * whether the old one naps.
 */
@JCStressTest
@Outcome(id = "1, 0", expect = Expect.ACCEPTABLE, desc = "The old one sees that it was relieved.")
@Outcome(id = "1, 1", expect = Expect.ACCEPTABLE, desc = "It naps once more, for nothing.")
@Outcome(expect = Expect.FORBIDDEN, desc = "The role was lost, or went back.")
@State
public class AttendantTakeOverRaceTest {
  private final Carriers carriers = new Carriers("over", 2); // not started: the actors are they

  public AttendantTakeOverRaceTest() {
    carriers.addSource(() -> 0, Carriers.NAP_NANOS_MAX);
    carriers.takeOver(carriers.all()[0]);
  }

  @Actor
  public void goesIdle() {
    carriers.takeOver(carriers.all()[1]);
  }

  @Actor
  public void restsAndLeaves(II_Result result) {
    Carrier old = carriers.all()[0];
    result.r2 = carriers.sleepNanos(old, 0) == Long.MAX_VALUE ? 0 : 1;
    carriers.leave(old);
  }

  @Arbiter
  public void end(II_Result result) {
    result.r1 = carriers.isAttendant(carriers.all()[1]) ? 1 : 0;
  }
}
