package io.fairlead.lab.canary;

import java.util.concurrent.atomic.AtomicInteger;
import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Arbiter;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.I_Result;

/** Two increments of an atomic field: the twin of {@link LostUpdateRaceTest} that must pass. */
@JCStressTest
@Outcome(id = "2", expect = Expect.ACCEPTABLE, desc = "Both counted.")
@Outcome(id = "1", expect = Expect.FORBIDDEN, desc = "One increment was lost.")
@State
public class KeptUpdateRaceTest {
  private final AtomicInteger value = new AtomicInteger();

  @Actor
  public void first() {
    value.incrementAndGet();
  }

  @Actor
  public void second() {
    value.incrementAndGet();
  }

  @Arbiter
  public void count(I_Result result) {
    result.r1 = value.get();
  }
}
