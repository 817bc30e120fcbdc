package io.fairlead.memory;

import io.fairlead.device.Access;
import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Arbiter;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.IJI_Result;

/**
 * The owner of a storage writes it while another stream does: each in a window of its own, and both
 * count. r1: how many went through their windows alone; r2: writes that the ledger knows of; r3:
 * marks that the next one comes after.
 */
@JCStressTest
@Outcome(
    id = {"2, 2, 1", "2, 3, 1"},
    expect = Expect.ACCEPTABLE,
    desc = "One after the other; a write that was found twice counts twice.")
@Outcome(expect = Expect.FORBIDDEN, desc = "Both at once, or one is forgotten.")
@State
public class OwnerUseRaceTest {
  private final Storage storage = RaceStreams.owned();
  private int windows;

  @Actor
  public void owner() {
    storage.acquire(RaceStreams.ONE, Access.WRITE);
    windows++; // plain: the windows alone keep it right
    storage.recorded(RaceStreams.ONE, 2, Access.WRITE);
  }

  @Actor
  public void other() {
    storage.acquire(RaceStreams.OTHER, Access.WRITE);
    windows++;
    storage.recorded(RaceStreams.OTHER, 2, Access.WRITE);
  }

  @Arbiter
  public void count(IJI_Result result) {
    result.r1 = windows;
    result.r2 = storage.generation();
    result.r3 = storage.frontier().size();
  }
}
