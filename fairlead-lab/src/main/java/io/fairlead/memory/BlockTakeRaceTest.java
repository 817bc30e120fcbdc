package io.fairlead.memory;

import java.util.List;
import java.util.Objects;
import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Arbiter;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.IIJ_Result;

/**
 * A block's own stream takes it while another finds it reached and takes it then: one has it, and
 * its bytes are given back only if it was reached before it was taken. r1: its own stream has it;
 * r2: the other; r3: bytes that still count.
 */
@JCStressTest
@Outcome(id = "1, 0, 256", expect = Expect.ACCEPTABLE, desc = "Its own stream was first.")
@Outcome(id = "0, 1, 0", expect = Expect.ACCEPTABLE, desc = "It was reached first.")
@Outcome(expect = Expect.FORBIDDEN, desc = "Two have it, or nobody, or its bytes are wrong.")
@State
public class BlockTakeRaceTest {
  private static final long BYTES = 256;

  private final Budget budget = new Budget(BYTES);
  private final Reclaimer reclaimer = new Reclaimer(budget);
  private final Reclaimer.Entry block;

  public BlockTakeRaceTest() {
    Charge charge = budget.tryCharge(new Account("task", 1, null), BYTES);
    budget.closing(Objects.requireNonNull(charge, "there is room"));
    // of no uses, so that whoever looks finds it reached
    block = new Reclaimer.Entry(new Frontier(null, List.of()), charge);
    reclaimer.add(block);
  }

  @Actor
  public void ownStream(IIJ_Result result) {
    result.r1 = block.takeUnreached() ? 1 : 0;
  }

  @Actor
  public void other(IIJ_Result result) {
    reclaimer.sweep();
    result.r2 = block.takeReleased() ? 1 : 0;
  }

  @Arbiter
  public void count(IIJ_Result result) {
    result.r3 = budget.stats().inUse();
  }
}
