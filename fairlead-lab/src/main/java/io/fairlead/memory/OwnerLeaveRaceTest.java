package io.fairlead.memory;

import io.fairlead.device.Access;
import io.fairlead.device.Mark;
import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.II_Result;

/**
 * The owner of a storage reads it while it leaves the device, of which it has a copy below already.
 * r1: 0 if it found it gone, 1 if it was there, and 2 if it left meanwhile; r2: 0 if it stays, 1 if
 * what is freed then has the read in its ledger, and 2 if not.
 */
@JCStressTest
@Outcome(id = "0, 2", expect = Expect.ACCEPTABLE, desc = "It left first.")
@Outcome(id = "1, 0", expect = Expect.ACCEPTABLE, desc = "The read was pending, and it stays.")
@Outcome(id = "1, 1", expect = Expect.ACCEPTABLE, desc = "The read came first.")
@Outcome(expect = Expect.FORBIDDEN, desc = "It left under a read, or was freed without it.")
@State
public class OwnerLeaveRaceTest {
  private final Storage storage = RaceStreams.ownedWithImage();

  @Actor
  public void read(II_Result result) {
    if (!storage.acquire(RaceStreams.ONE, Access.READ)) {
      return;
    }
    boolean there = storage.address != 0;
    storage.recorded(RaceStreams.ONE, RaceStreams.LAST_OWN + 1, Access.READ);
    result.r1 = there ? 1 : 2;
  }

  @Actor
  public void leave(II_Result result) {
    Storage left = storage.leave();
    if (left != null) {
      result.r2 =
          left.frontier().contains(new Mark(RaceStreams.ONE, RaceStreams.LAST_OWN + 1)) ? 1 : 2;
    }
  }
}
