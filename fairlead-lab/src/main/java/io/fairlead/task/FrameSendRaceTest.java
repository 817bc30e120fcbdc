package io.fairlead.task;

import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Arbiter;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.III_Result;

/**
 * An owner that is about to wait, while the runner comes that was sent for its wait before: the
 * runner takes the frame, or the owner sends another one. The last figure is whether another one,
 * sent if the owner said so, takes it.
 */
@JCStressTest
@Outcome(id = "0, 1, 0", expect = Expect.ACCEPTABLE, desc = "The runner that came has it.")
@Outcome(id = "1, 1, 0", expect = Expect.ACCEPTABLE, desc = "It has it; another comes in vain.")
@Outcome(id = "1, 0, 1", expect = Expect.ACCEPTABLE, desc = "It came too early; another has it.")
@Outcome(expect = Expect.FORBIDDEN, desc = "The owner waits for a frame that nobody comes for.")
@State
public class FrameSendRaceTest {
  private static final TaskRuntime RUNTIME = TaskRuntime.open(TaskConfig.DEFAULT);

  private final Forks forks = new Forks(RUNTIME.runners(), new Execution(Task.root(), null), null);
  private boolean sent;

  /** A runner is on its way, and the owner does not wait yet. */
  public FrameSendRaceTest() {
    forks.call();
  }

  @Actor
  public void owner(III_Result result) {
    LongFrame frame = new LongFrame(forks, 0);
    frame.ready();
    forks.lay(frame);
    sent = forks.offer();
    result.r1 = sent ? 1 : 0;
  }

  @Actor
  public void runner(III_Result result) {
    result.r2 = forks.takeAsSent() == null ? 0 : 1;
  }

  @Arbiter
  public void another(III_Result result) {
    result.r3 = sent && forks.takeAsSent() != null ? 1 : 0;
    forks.end();
  }
}
