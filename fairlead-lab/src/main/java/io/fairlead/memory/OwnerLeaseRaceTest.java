package io.fairlead.memory;

import io.fairlead.device.Access;
import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Arbiter;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.III_Result;

/**
 * The owner of a storage uses it twice while it is leased to another stream: as soon as it was
 * refused once it is refused again. r1: uses of the owner; r2: how many went through their windows
 * alone; r3: whether the owner is refused afterwards.
 */
@JCStressTest
@Outcome(
    id = {"0, 1, 1", "1, 2, 1", "2, 3, 1"},
    expect = Expect.ACCEPTABLE,
    desc = "The lease came before that use.")
@Outcome(expect = Expect.FORBIDDEN, desc = "Used under a lease.")
@State
public class OwnerLeaseRaceTest {
  private final Storage storage = RaceStreams.owned();
  private int windows;

  @Actor
  public void use(III_Result result) {
    result.r1 = (used(2) ? 1 : 0) + (used(3) ? 1 : 0);
  }

  private boolean used(long number) {
    try {
      storage.acquire(RaceStreams.ONE, Access.WRITE);
    } catch (IllegalStateException leased) {
      return false;
    }
    windows++; // plain: the windows alone keep it right
    storage.recorded(RaceStreams.ONE, number, Access.WRITE);
    return true;
  }

  @Actor
  public void lend() {
    storage.lend(RaceStreams.OTHER, Access.WRITE, Keeper.of(new Account("task", 1, null), null));
    storage.acquire(RaceStreams.OTHER, Access.WRITE);
    windows++;
    storage.recorded(RaceStreams.OTHER, 2, Access.WRITE);
  }

  @Arbiter
  public void look(III_Result result) {
    result.r2 = windows;
    result.r3 = used(4) ? 0 : 1;
  }
}
