package io.fairlead.task;

import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.II_Result;

/**
 * The owner that joins against a runner that takes the same frame. In the package of the frame,
 * since nothing public takes one.
 */
@JCStressTest
@Outcome(id = "1, 0", expect = Expect.ACCEPTABLE, desc = "The owner runs it in place.")
@Outcome(id = "0, 1", expect = Expect.ACCEPTABLE, desc = "The runner has it.")
@Outcome(expect = Expect.FORBIDDEN, desc = "Nobody runs it, or two do.")
@State
public class FrameTakeRaceTest {
  private final LongFrame frame = FrameReuseRaceTest.frame();
  private final long number;

  /** Forked. */
  public FrameTakeRaceTest() {
    frame.ready();
    number = frame.waiting();
  }

  @Actor
  public void owner(II_Result result) {
    result.r1 = frame.claim() ? 1 : 0;
  }

  @Actor
  public void runner(II_Result result) {
    result.r2 = frame.take(number) ? 1 : 0;
  }
}
