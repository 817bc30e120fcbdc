package io.fairlead.memory;

import io.fairlead.device.Access;
import io.fairlead.device.Mark;
import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Arbiter;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.IJ_Result;

/**
 * The owner of a storage reads it while another stream does, and neither waits for the other: who
 * comes next comes after the write before, and after both. r1: marks that the next one comes after;
 * r2: the number of the owner's.
 */
@JCStressTest
@Outcome(id = "3, 2", expect = Expect.ACCEPTABLE, desc = "All of them.")
@Outcome(expect = Expect.FORBIDDEN, desc = "A read is forgotten.")
@State
public class OwnerReadRaceTest {
  private final Storage storage = RaceStreams.owned();

  @Actor
  public void owner() {
    storage.acquire(RaceStreams.ONE, Access.READ);
    storage.recorded(RaceStreams.ONE, 2, Access.READ);
  }

  @Actor
  public void other() {
    storage.acquire(RaceStreams.OTHER, Access.READ);
    storage.recorded(RaceStreams.OTHER, 1, Access.READ);
  }

  @Arbiter
  public void count(IJ_Result result) {
    result.r1 = storage.frontier().size();
    result.r2 =
        storage.frontier().stream()
            .filter(mark -> mark.stream() == RaceStreams.ONE)
            .mapToLong(Mark::sequence)
            .max()
            .orElse(0);
  }
}
