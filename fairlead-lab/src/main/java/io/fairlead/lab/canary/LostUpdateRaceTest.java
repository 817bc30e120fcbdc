package io.fairlead.lab.canary;

import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Arbiter;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.I_Result;

/** Two increments of a plain field: one gets lost, which is forbidden here, so this must fail. */
@JCStressTest
@Outcome(id = "2", expect = Expect.ACCEPTABLE, desc = "Both counted.")
@Outcome(id = "1", expect = Expect.FORBIDDEN, desc = "One increment was lost.")
@State
public class LostUpdateRaceTest {
  /** Long enough for the other to come between, on a busy machine too. */
  private static final int SPINS = 50;

  private int value;

  @Actor
  public void first() {
    increment();
  }

  @Actor
  public void second() {
    increment();
  }

  private void increment() {
    int seen = value;
    for (int spin = 0; spin < SPINS; spin++) {
      Thread.onSpinWait();
    }
    value = seen + 1;
  }

  @Arbiter
  public void count(I_Result result) {
    result.r1 = value;
  }
}
