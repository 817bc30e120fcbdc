package io.fairlead.task;

import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.II_Result;

/** Two runners that take the same frame. */
@JCStressTest
@Outcome(id = "1, 0", expect = Expect.ACCEPTABLE, desc = "The first runner has it.")
@Outcome(id = "0, 1", expect = Expect.ACCEPTABLE, desc = "The second runner has it.")
@Outcome(expect = Expect.FORBIDDEN, desc = "Nobody runs it, or two do.")
@State
public class FrameTwoRunnersRaceTest {
  private final LongFrame frame = FrameReuseRaceTest.frame();
  private final long number;

  /** Forked. */
  public FrameTwoRunnersRaceTest() {
    frame.ready();
    number = frame.waiting();
  }

  @Actor
  public void first(II_Result result) {
    result.r1 = frame.take(number) ? 1 : 0;
  }

  @Actor
  public void second(II_Result result) {
    result.r2 = frame.take(number) ? 1 : 0;
  }
}
