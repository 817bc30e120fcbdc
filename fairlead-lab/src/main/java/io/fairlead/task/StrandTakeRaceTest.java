package io.fairlead.task;

import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Arbiter;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.II_Result;

/** Threads that take the turn by hand: one at a time, each sees what the one before did. */
@JCStressTest
@Outcome(id = "2, 1", expect = Expect.ACCEPTABLE, desc = "One after the other; the turn is free.")
@Outcome(expect = Expect.FORBIDDEN, desc = "Two ran at once, or the turn was kept.")
@State
public class StrandTakeRaceTest {
  private final Strand strand = new Strand();
  private int guarded;

  public StrandTakeRaceTest() {
    strand.pass(); // free
  }

  @Actor
  public void first() {
    count();
  }

  @Actor
  public void second() {
    count();
  }

  private void count() {
    strand.take();
    guarded++;
    strand.pass();
  }

  @Arbiter
  public void after(II_Result result) {
    result.r1 = guarded;
    result.r2 = strand.isFree() ? 1 : 0;
  }
}
