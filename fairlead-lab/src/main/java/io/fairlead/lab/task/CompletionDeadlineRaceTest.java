package io.fairlead.lab.task;

import io.fairlead.fault.DeadlineExceededException;
import io.fairlead.task.Completion;
import io.fairlead.task.WaitMode;
import java.time.Duration;
import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Arbiter;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.II_Result;

/**
 * complete against waits that end early, enough of them for a sweep: the sweep takes no living node
 * with it. r1: whether the last wait got 7 or its deadline (-1); r2: callbacks that ran, of the two
 * that were there before.
 */
@JCStressTest
@Outcome(id = "7, 2", expect = Expect.ACCEPTABLE, desc = "Completed while it waited.")
@Outcome(id = "-1, 2", expect = Expect.ACCEPTABLE, desc = "All deadlines came first.")
@Outcome(expect = Expect.FORBIDDEN, desc = "A living node was swept, or fired twice.")
@State
public class CompletionDeadlineRaceTest {
  /** As many dead nodes as set off a sweep. */
  private static final int WAITS = 66;

  private static final Duration SHORT = Duration.ofNanos(1);

  private final Completion.Source<Integer> source = Completion.source();
  private int callbacks;

  public CompletionDeadlineRaceTest() {
    source.completion().onDone(done -> callbacks++);
    source.completion().onDone(done -> callbacks++);
  }

  @Actor
  public void complete() {
    source.complete(7);
  }

  @Actor
  public void await(II_Result result) {
    for (int i = 0; i < WAITS; i++) {
      result.r1 = awaitShortly();
    }
  }

  private int awaitShortly() {
    try {
      return source.completion().await(WaitMode.NONBLOCKING, SHORT);
    } catch (DeadlineExceededException e) {
      return -1;
    }
  }

  @Arbiter
  public void count(II_Result result) {
    result.r2 = callbacks;
  }
}
