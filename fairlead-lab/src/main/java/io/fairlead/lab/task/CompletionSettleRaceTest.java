package io.fairlead.lab.task;

import io.fairlead.task.Completion;
import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Arbiter;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.IIII_Result;

/**
 * complete against cancel: one wins. r1, r2: 1 if complete, cancel won; r3: callbacks that ran; r4:
 * 1 if the state is what the winner made.
 */
@JCStressTest
@Outcome(id = "1, 0, 1, 1", expect = Expect.ACCEPTABLE, desc = "Completed first: the value stands.")
@Outcome(
    id = "0, 1, 1, 1",
    expect = Expect.ACCEPTABLE,
    desc = "Cancelled first: the cancellation stands.")
@Outcome(expect = Expect.FORBIDDEN, desc = "Two outcomes, none, or a callback lost or run twice.")
@State
public class CompletionSettleRaceTest {
  private final Completion.Source<Integer> source = Completion.source();
  private int callbacks;

  public CompletionSettleRaceTest() {
    source.completion().onDone(done -> callbacks++);
  }

  @Actor
  public void complete(IIII_Result result) {
    result.r1 = source.complete(1) ? 1 : 0;
  }

  @Actor
  public void cancel(IIII_Result result) {
    result.r2 = source.completion().cancel() ? 1 : 0;
  }

  @Arbiter
  public void look(IIII_Result result) {
    Completion.State state = source.completion().state();
    boolean right =
        result.r1 == 1 ? state == Completion.State.DONE : state == Completion.State.CANCELLED;
    result.r3 = callbacks;
    result.r4 = right ? 1 : 0;
  }
}
