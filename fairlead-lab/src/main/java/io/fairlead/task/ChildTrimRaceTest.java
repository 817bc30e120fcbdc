package io.fairlead.task;

import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Arbiter;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.II_Result;

/**
 * A runner takes the only child of a deque while its parent takes the begun child off and forks the
 * next one in its place: runners see the next one. r1: whether the runner took the first; r2:
 * whether the second can be seen, -1 if it was not forked.
 */
@JCStressTest
@Outcome(id = "1, 1", expect = Expect.ACCEPTABLE, desc = "Taken; the next in its place is seen.")
@Outcome(id = "1, 0", expect = Expect.FORBIDDEN, desc = "A late runner has hidden the next one.")
@Outcome(expect = Expect.FORBIDDEN, desc = "The only child was not there to take.")
@State
public class ChildTrimRaceTest {
  private static final TaskRuntime RUNTIME = TaskRuntime.open(TaskConfig.DEFAULT);
  private static final TaskScope<Integer> SCOPE = RUNTIME.scope();

  static {
    RUNTIME.runners().close(); // nobody but the actors looks at the deques
  }

  private final Forks forks = deque();
  private final Fork<Integer> first = child();
  private final Fork<Integer> second = child();

  public ChildTrimRaceTest() {
    forks.push(first);
  }

  /** At which nobody but the actors looks. */
  static Forks deque() {
    return new Forks(RUNTIME.runners(), new Execution(Task.root(), null), null);
  }

  static Fork<Integer> child() {
    Task task = new Task(Task.root(), "child", 0, Placement.FREE, WaitMode.NONBLOCKING);
    return new Fork<>(SCOPE, task, () -> 1, null, true);
  }

  @Actor
  public void runner(II_Result result) {
    ForkFrame oldest = forks.oldest();
    result.r1 = oldest == first && forks.take(first, first.waiting()) ? 1 : 0;
  }

  @Actor
  public void parent() {
    while (first.waiting() != 0) {
      Thread.onSpinWait();
    }
    forks.trim(0);
    forks.push(second);
  }

  @Arbiter
  public void look(II_Result result) {
    result.r2 = forks.oldest() == second ? 1 : 0;
    forks.end();
  }
}
