package io.fairlead.task;

import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Arbiter;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.III_Result;

/**
 * Two that enter a strand whose turn is free: one of them goes on, the other when the first gives
 * it up, and then the turn is free.
 */
@JCStressTest
@Outcome(id = "1, 2, 1", expect = Expect.ACCEPTABLE, desc = "One at a time, both, none left.")
@Outcome(id = "0, .*", expect = Expect.FORBIDDEN, desc = "Both wait for ever.")
@Outcome(id = "2, .*", expect = Expect.FORBIDDEN, desc = "Both run at once.")
@Outcome(expect = Expect.FORBIDDEN, desc = "One was lost, or ran twice, or the turn was.")
@State
public class StrandEnterRaceTest {

  private static final class Counting extends Strand.Member {
    int turns;

    @Override
    void goOn() {
      turns++;
    }
  }

  private final Strand strand = new Strand();
  private final Counting one = new Counting();
  private final Counting other = new Counting();

  public StrandEnterRaceTest() {
    strand.pass(); // free
  }

  @Actor
  public void enters() {
    strand.enter(one);
  }

  @Actor
  public void entersToo() {
    strand.enter(other);
  }

  @Arbiter
  public void after(III_Result result) {
    result.r1 = one.turns + other.turns;
    strand.pass();
    result.r2 = one.turns + other.turns;
    strand.pass();
    result.r3 = strand.isFree() ? 1 : 0;
  }
}
