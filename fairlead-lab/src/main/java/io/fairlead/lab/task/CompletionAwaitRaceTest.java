package io.fairlead.lab.task;

import io.fairlead.fault.DeadlineExceededException;
import io.fairlead.task.Completion;
import io.fairlead.task.WaitMode;
import java.time.Duration;
import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.II_Result;

/**
 * complete against one that waits: it is never left asleep, and sees what was written before. r1:
 * the value, or -1 if none came for 20 s; r2: the write.
 */
@JCStressTest
@Outcome(id = "7, 5", expect = Expect.ACCEPTABLE, desc = "Got the value, and the write with it.")
@Outcome(id = "-1, .*", expect = Expect.FORBIDDEN, desc = "A wake was lost.")
@Outcome(expect = Expect.FORBIDDEN, desc = "A value that nobody set, or a write that is not seen.")
@State
public class CompletionAwaitRaceTest {
  private static final Duration LOST = Duration.ofSeconds(20);

  private final Completion.Source<Integer> source = Completion.source();
  private int written;

  @Actor
  public void complete() {
    written = 5;
    source.complete(7);
  }

  @Actor
  public void await(II_Result result) {
    try {
      result.r1 = source.completion().await(WaitMode.NONBLOCKING, LOST);
    } catch (DeadlineExceededException e) {
      result.r1 = -1;
    }
    result.r2 = written;
  }
}
