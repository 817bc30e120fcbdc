package io.fairlead.lab.task;

import io.fairlead.task.Owner;
import io.fairlead.task.Retired;
import io.fairlead.task.Role;
import io.fairlead.task.TaskConfig;
import io.fairlead.task.TaskRuntime;
import io.fairlead.task.WaitMode;
import java.util.concurrent.atomic.AtomicInteger;
import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Arbiter;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.III_Result;

/**
 * close() and the cleaner retire the same node at once, and each another one, while the owner
 * drains: every node is released once. r1: the shared node; r2, r3: the others.
 */
@JCStressTest
@Outcome(id = "1, 1, 1", expect = Expect.ACCEPTABLE, desc = "Each was released once.")
@Outcome(expect = Expect.FORBIDDEN, desc = "One was lost or released twice.")
@State
public class OwnerRetireRaceTest {
  private static final long LOST_NANOS = 20_000_000_000L;
  private static final Owner OWNER =
      TaskRuntime.open(new TaskConfig(WaitMode.NONBLOCKING, 16, 0, 0, 1_000))
          .owner("race", Role.OWNER);

  private final Node shared = new Node();
  private final Node closed = new Node();
  private final Node cleaned = new Node();

  private static final class Node extends Retired {
    private final AtomicInteger released = new AtomicInteger();

    @Override
    protected void release() {
      released.incrementAndGet();
    }
  }

  @Actor
  public void close() {
    OWNER.retire(closed);
    OWNER.retire(shared);
  }

  @Actor
  public void clean() {
    OWNER.retire(shared);
    OWNER.retire(cleaned);
  }

  @Arbiter
  public void count(III_Result result) {
    long end = System.nanoTime() + LOST_NANOS;
    while (!allReleased() && System.nanoTime() - end < 0) {
      Thread.onSpinWait();
    }
    result.r1 = shared.released.get();
    result.r2 = closed.released.get();
    result.r3 = cleaned.released.get();
  }

  private boolean allReleased() {
    return shared.released.get() > 0 && closed.released.get() > 0 && cleaned.released.get() > 0;
  }
}
