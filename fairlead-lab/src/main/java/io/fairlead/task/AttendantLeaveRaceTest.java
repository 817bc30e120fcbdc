package io.fairlead.task;

import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Arbiter;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.II_Result;

/**
 * The attendant goes to run something while another carrier and the watcher are about to sleep, and
 * a source has something pending: one of them stays awake, or is woken. First: whether the carrier
 * naps, and so attends. Second: whether the watcher is awake.
 */
@JCStressTest
@Outcome(id = "0, 1", expect = Expect.ACCEPTABLE, desc = "The watcher sees to it.")
@Outcome(id = "1, 0", expect = Expect.ACCEPTABLE, desc = "The other carrier attends.")
@Outcome(id = "1, 1", expect = Expect.ACCEPTABLE, desc = "Both.")
@Outcome(expect = Expect.FORBIDDEN, desc = "All sleep, or are busy: the source is forgotten.")
@State
public class AttendantLeaveRaceTest {
  private final Carriers carriers = new Carriers("leave", 2); // not started: the actors are they
  private boolean watcherSleeps;

  public AttendantLeaveRaceTest() {
    carriers.addSource(() -> 0, Carriers.NAP_NANOS_MAX);
    carriers.takeOver(carriers.all()[0]);
  }

  @Actor
  public void leaves() {
    carriers.leave(carriers.all()[0]);
  }

  @Actor
  public void restsAndWatches(II_Result result) {
    result.r1 = carriers.sleepNanos(carriers.all()[1], 0) == Long.MAX_VALUE ? 0 : 1;
    watcherSleeps = carriers.watcher.mayFallAsleep();
  }

  @Arbiter
  public void end(II_Result result) {
    result.r2 = watcherSleeps && carriers.isWatcherAsleep() ? 0 : 1;
  }
}
