package io.fairlead.task;

import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.II_Result;

/**
 * Two carriers ask how long they may sleep, and one of them is the one on which a source has just
 * begun to have something pending: one of the two naps, so that somebody polls. 0: it sleeps
 * without limit; 1: it naps.
 */
@JCStressTest
@Outcome(id = "0, 1", expect = Expect.ACCEPTABLE, desc = "The one that knows of it naps.")
@Outcome(id = "1, 0", expect = Expect.ACCEPTABLE, desc = "It relies on the other, which naps.")
@Outcome(id = "0, 0", expect = Expect.FORBIDDEN, desc = "Each relies on the other.")
@Outcome(expect = Expect.FORBIDDEN, desc = "Both nap: one of them for nothing.")
@State
public class CarrierNapRaceTest {
  private final Carriers carriers = new Carriers("nap", 2); // not started: the actors are they
  private final Source source = new Source();

  private static final class Source implements PollSource {
    private volatile boolean pending;

    @Override
    public int poll() {
      return 0;
    }

    @Override
    public boolean hasPending() {
      return pending;
    }
  }

  public CarrierNapRaceTest() {
    carriers.addSource(source, Carriers.NAP_NANOS_MAX);
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
