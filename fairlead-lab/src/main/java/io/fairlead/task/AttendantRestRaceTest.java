package io.fairlead.task;

import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.II_Result;

/**
 * The attendant rests, since nothing is pending any more, while something begins to be on a carrier
 * that then rests too and relies on it: one of the two naps. 0: it sleeps without limit; 1: it
 * naps.
 */
@JCStressTest
@Outcome(id = "1, 0", expect = Expect.ACCEPTABLE, desc = "The attendant saw it, and stays.")
@Outcome(id = "0, 1", expect = Expect.ACCEPTABLE, desc = "It gave up; the one that knows attends.")
@Outcome(id = "0, 0", expect = Expect.FORBIDDEN, desc = "Each relies on the other.")
@Outcome(expect = Expect.FORBIDDEN, desc = "Both nap: one of them for nothing.")
@State
public class AttendantRestRaceTest {
  private final Carriers carriers = new Carriers("rest", 2); // not started: the actors are they
  private final Source source = new Source();

  private static final class Source implements PollSource {
    private volatile boolean pending = true;

    @Override
    public int poll() {
      return 0;
    }

    @Override
    public boolean hasPending() {
      return pending;
    }
  }

  public AttendantRestRaceTest() {
    carriers.addSource(source, Carriers.NAP_NANOS_MAX);
    carriers.takeOver(carriers.all()[0]);
    source.pending = false;
  }

  @Actor
  public void first(II_Result result) {
    result.r1 = naps(0);
  }

  @Actor
  public void second(II_Result result) {
    source.pending = true;
    result.r2 = naps(1);
  }

  private int naps(int carrier) {
    return carriers.sleepNanos(carriers.all()[carrier], 0) == Long.MAX_VALUE ? 0 : 1;
  }
}
