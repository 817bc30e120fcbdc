package io.fairlead.task;

import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Arbiter;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.II_Result;

/**
 * A runner takes the second child of a deque, whose first has begun long ago, while their parent
 * takes the second off, down to where its caller began, and forks the next one in its place:
 * runners see the next one. r1: whether the runner took the second; r2: whether the next can be
 * seen.
 */
@JCStressTest
@Outcome(id = "1, 1", expect = Expect.ACCEPTABLE, desc = "Taken; the next in its place is seen.")
@Outcome(id = "1, 0", expect = Expect.FORBIDDEN, desc = "A late runner has hidden the next one.")
@Outcome(expect = Expect.FORBIDDEN, desc = "The child was not there to take.")
@State
public class ChildFloorRaceTest {
  private final Forks forks = ChildTrimRaceTest.deque();
  private final Fork<Integer> second = ChildTrimRaceTest.child();
  private final Fork<Integer> next = ChildTrimRaceTest.child();

  /** Begun by its parent, so that no runner has moved top past it. */
  public ChildFloorRaceTest() {
    Fork<Integer> begun = ChildTrimRaceTest.child();
    forks.push(begun);
    begun.claim();
    forks.push(second);
  }

  @Actor
  public void runner(II_Result result) {
    ForkFrame oldest = forks.oldest();
    result.r1 = oldest == second && forks.take(second, second.waiting()) ? 1 : 0;
  }

  @Actor
  public void parent() {
    while (second.waiting() != 0) {
      Thread.onSpinWait();
    }
    forks.trim(1);
    forks.push(next);
  }

  @Arbiter
  public void look(II_Result result) {
    result.r2 = forks.oldest() == next ? 1 : 0;
    forks.end();
  }
}
