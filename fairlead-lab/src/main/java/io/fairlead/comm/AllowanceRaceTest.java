package io.fairlead.comm;

import io.fairlead.comm.Allowance.Waiter;
import org.jspecify.annotations.Nullable;
import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Arbiter;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.III_Result;

/**
 * The last one is out. One gives it back and tries to have it again, as who cannot wait; another
 * waits for it: exactly one of the two has it afterwards.
 */
@JCStressTest
@Outcome(id = "1, 0, 1", expect = Expect.ACCEPTABLE, desc = "Who waits was served.")
@Outcome(id = "0, 1, 1", expect = Expect.ACCEPTABLE, desc = "The other tried before it was marked.")
@Outcome(
    id = "0, 0, .*",
    expect = Expect.FORBIDDEN,
    desc = "A wake was lost: it is free, one waits.")
@Outcome(expect = Expect.FORBIDDEN, desc = "It was given twice, or miscounted.")
@State
public class AllowanceRaceTest {
  private final Allowance allowance = taken();
  private @Nullable Waiter waiter;

  private static Allowance taken() {
    Allowance allowance = new Allowance(1);
    boolean taken = allowance.tryTake(1);
    assert taken : "nobody else has it";
    return allowance;
  }

  @Actor
  public void givesAndTries(III_Result result) {
    allowance.give(1);
    result.r2 = allowance.tryTake(1) ? 1 : 0;
  }

  @Actor
  public void waits() {
    waiter = allowance.queue(1, () -> false);
  }

  @Arbiter
  public void after(III_Result result) {
    Waiter waits = waiter;
    result.r1 = waits != null && waits.source().completion().isDone() ? 1 : 0;
    result.r3 = (int) allowance.out();
  }
}
