package io.fairlead.task;

import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Arbiter;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.III_Result;

/**
 * One that enters a strand against the one that gives its turn up, which nobody else waits for: it
 * gets the turn once, and what the other did before is seen.
 */
@JCStressTest
@Outcome(id = "1, 7, 1", expect = Expect.ACCEPTABLE, desc = "It goes on; then the turn is free.")
@Outcome(id = "0, .*", expect = Expect.FORBIDDEN, desc = "The wake was lost: it waits for ever.")
@Outcome(expect = Expect.FORBIDDEN, desc = "It ran twice, or saw too little, or kept the turn.")
@State
public class StrandTurnRaceTest {
  private final Strand strand = new Strand(); // taken
  private final Counting member = new Counting();
  private int guarded;

  private final class Counting extends Strand.Member {
    int turns;
    int seen;

    @Override
    void goOn() {
      turns++;
      seen = guarded;
    }
  }

  @Actor
  public void enters() {
    strand.enter(member);
  }

  @Actor
  public void passes() {
    guarded = 7;
    strand.pass();
  }

  @Arbiter
  public void after(III_Result result) {
    result.r1 = member.turns;
    result.r2 = member.seen;
    strand.pass();
    result.r3 = strand.isFree() ? 1 : 0;
  }
}
