package io.fairlead.lab.task;

import io.fairlead.task.Completion;
import java.util.concurrent.atomic.AtomicInteger;
import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Arbiter;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.I_Result;

/** complete against two registrations: each callback runs once, on one side or the other. */
@JCStressTest
@Outcome(id = "11", expect = Expect.ACCEPTABLE, desc = "Each ran once.")
@Outcome(expect = Expect.FORBIDDEN, desc = "One was lost or ran twice.")
@State
public class CompletionCallbackRaceTest {
  private final Completion.Source<Integer> source = Completion.source();
  private final AtomicInteger ran = new AtomicInteger();

  @Actor
  public void complete() {
    source.complete(1);
  }

  @Actor
  public void register() {
    source.completion().onDone(done -> ran.addAndGet(1));
    source.completion().onDone(done -> ran.addAndGet(10));
  }

  @Arbiter
  public void count(I_Result result) {
    result.r1 = ran.get();
  }
}
