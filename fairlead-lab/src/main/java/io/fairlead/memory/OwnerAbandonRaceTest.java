package io.fairlead.memory;

import io.fairlead.device.Access;
import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Arbiter;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.II_Result;

/**
 * The owner of a storage gives a use up while another stream writes it: the other one is all that
 * there is. r1: the stream of the mark that the next one comes after; r2: whether the owner may
 * write it again.
 */
@JCStressTest
@Outcome(id = "2, 1", expect = Expect.ACCEPTABLE, desc = "The other one's.")
@Outcome(expect = Expect.FORBIDDEN, desc = "A use that never was, or a window that stayed open.")
@State
public class OwnerAbandonRaceTest {
  private final Storage storage = RaceStreams.owned();

  @Actor
  public void owner() {
    storage.acquire(RaceStreams.ONE, Access.WRITE);
    storage.abandoned(RaceStreams.ONE, Access.WRITE);
  }

  @Actor
  public void other() {
    storage.acquire(RaceStreams.OTHER, Access.WRITE);
    storage.recorded(RaceStreams.OTHER, 2, Access.WRITE);
  }

  @Arbiter
  public void look(II_Result result) {
    result.r1 = storage.frontier().getFirst().stream() == RaceStreams.ONE ? 1 : 2;
    storage.close(Site.NOT_KEPT);
    result.r2 = storage.lastUses() == Frontier.NONE ? 1 : 0; // would wait for an open window
  }
}
