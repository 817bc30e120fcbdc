package io.fairlead.memory;

import io.fairlead.device.Access;
import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.IJ_Result;

/**
 * The owner of a storage uses it while somebody closes it: it is refused, or who frees the memory
 * comes after it. r1: whether it was used; r2: the last use that was known as it was freed.
 */
@JCStressTest
@Outcome(id = "1, 2", expect = Expect.ACCEPTABLE, desc = "The use came first.")
@Outcome(id = "0, 1", expect = Expect.ACCEPTABLE, desc = "The close came first.")
@Outcome(expect = Expect.FORBIDDEN, desc = "Freed under a use, or after one that never was.")
@State
public class OwnerCloseRaceTest {
  private final Storage storage = RaceStreams.owned();

  @Actor
  public void use(IJ_Result result) {
    try {
      storage.acquire(RaceStreams.ONE, Access.WRITE);
      storage.recorded(RaceStreams.ONE, 2, Access.WRITE);
      result.r1 = 1;
    } catch (IllegalStateException closed) {
      result.r1 = 0;
    }
  }

  @Actor
  public void close(IJ_Result result) {
    storage.close(Site.NOT_KEPT);
    result.r2 = storage.frontier().getFirst().sequence();
  }
}
