package io.fairlead.task;

import org.jspecify.annotations.Nullable;
import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Arbiter;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.IIII_Result;

/** A carrier puts two into its queue and takes one; a thief steals; what is left is left once. */
@JCStressTest
@Outcome(id = "1, 0, 0, 2", expect = Expect.ACCEPTABLE, desc = "The thief came too early.")
@Outcome(id = "1, 2, 0, 0", expect = Expect.ACCEPTABLE, desc = "One each, the carrier first.")
@Outcome(id = "2, 1, 0, 0", expect = Expect.ACCEPTABLE, desc = "One each, the thief first.")
@Outcome(expect = Expect.FORBIDDEN, desc = "One was taken twice, or by nobody.")
@State
public class CarrierQueueRaceTest {
  private static final Carriers NONE = new Carriers("none", 1);

  private final CarrierQueue queue = new CarrierQueue();
  private final CarrierQueue thief = new CarrierQueue();
  private final ReadyQueue rest = new ReadyQueue();
  private final Resumable one = new Resumable.Free(NONE, null);
  private final Resumable two = new Resumable.Free(NONE, null);

  @Actor
  public void carrier(IIII_Result result) {
    queue.offer(one);
    queue.offer(two);
    result.r1 = number(queue.poll());
  }

  @Actor
  public void thief(IIII_Result result) {
    result.r2 = number(queue.steal(thief, rest));
  }

  @Arbiter
  public void left(IIII_Result result) {
    result.r3 = number(thief.poll());
    result.r4 = number(queue.poll());
  }

  private int number(@Nullable Resumable ready) {
    return ready == null ? 0 : ready.equals(one) ? 1 : 2;
  }
}
