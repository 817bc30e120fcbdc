package io.fairlead.task;

import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Arbiter;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.III_Result;

/**
 * One adds to the common queue and takes, another takes: it is taken or left once. Who comes while
 * the other is at it goes away without.
 */
@JCStressTest
@Outcome(id = "1, 0, 0", expect = Expect.ACCEPTABLE, desc = "The one who added it took it.")
@Outcome(id = "0, 1, 0", expect = Expect.ACCEPTABLE, desc = "The other took it.")
@Outcome(id = "0, 0, 1", expect = Expect.ACCEPTABLE, desc = "The other was at it, too early.")
@Outcome(expect = Expect.FORBIDDEN, desc = "It was taken twice, or lost.")
@State
public class ReadyQueueRaceTest {
  private static final Carriers NONE = new Carriers("none", 1);

  private final ReadyQueue queue = new ReadyQueue();
  private final CarrierQueue first = new CarrierQueue();
  private final CarrierQueue second = new CarrierQueue();
  private final Resumable only = new Resumable.Free(NONE, null);

  @Actor
  public void first(III_Result result) {
    queue.add(only);
    result.r1 = queue.take(first, 2) == null ? 0 : 1;
  }

  @Actor
  public void second(III_Result result) {
    result.r2 = queue.take(second, 2) == null ? 0 : 1;
  }

  @Arbiter
  public void left(III_Result result) {
    int left = 0;
    while (queue.poll() != null) {
      left++;
    }
    while (first.poll() != null) {
      left++;
    }
    while (second.poll() != null) {
      left++;
    }
    result.r3 = left;
  }
}
