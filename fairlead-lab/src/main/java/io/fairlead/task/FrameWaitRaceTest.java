package io.fairlead.task;

import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.I_Result;

/** An owner that waits for a runner against the runner's end: it always wakes, with the result. */
@JCStressTest
@Outcome(id = "7", expect = Expect.ACCEPTABLE, desc = "The owner has the result.")
@Outcome(expect = Expect.FORBIDDEN, desc = "It went on without.")
@State
public class FrameWaitRaceTest {
  private static final int SPINS = 60;

  private final LongFrame frame = FrameReuseRaceTest.frame();

  /** Forked, and taken by a runner. */
  public FrameWaitRaceTest() {
    frame.ready();
    if (!frame.take(frame.waiting())) {
      throw new IllegalStateException("nobody else could have taken it");
    }
  }

  @Actor
  public void owner(I_Result result) {
    frame.awaitDone();
    frame.finish();
    result.r1 = (int) frame.result;
  }

  @Actor
  public void runner() {
    for (int i = 0; i < SPINS; i++) {
      Thread.onSpinWait(); // so that the owner parks now and then
    }
    frame.result = 7;
    frame.done();
  }
}
