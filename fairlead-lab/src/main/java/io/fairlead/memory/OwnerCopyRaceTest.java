package io.fairlead.memory;

import io.fairlead.device.Access;
import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.IL_Result;

/**
 * The owner of a storage writes it while it is copied to below: the copy is its image only without
 * the write, and then nobody had written. r1: 0 if the write came before the copy, 1 if after it
 * began, 2 if it found it gone; r2: what has become of the copy.
 */
@JCStressTest
@Outcome(id = "0, LEFT", expect = Expect.ACCEPTABLE, desc = "Copied as it was written.")
@Outcome(id = "1, DROPPED", expect = Expect.ACCEPTABLE, desc = "Written since the copy began.")
@Outcome(
    id = "1, KEPT",
    expect = Expect.ACCEPTABLE,
    desc = "About to be written as the copy ended.")
@Outcome(id = "2, LEFT", expect = Expect.ACCEPTABLE, desc = "It left first.")
@Outcome(expect = Expect.FORBIDDEN, desc = "A copy of old bytes is its image.")
@State
public class OwnerCopyRaceTest {
  private final Storage storage = RaceStreams.owned();
  private boolean copied;

  @Actor
  public void write(IL_Result result) {
    if (!storage.acquire(RaceStreams.ONE, Access.WRITE)) {
      result.r1 = 2;
      return;
    }
    result.r1 = copied ? 1 : 0; // plain: the windows keep it right
    storage.recorded(RaceStreams.ONE, 2, Access.WRITE);
  }

  @Actor
  public void copy(IL_Result result) {
    storage.beginCopy();
    long generation = storage.acquireToCopy(RaceStreams.OTHER, -1);
    copied = true;
    storage.recordedCopy(RaceStreams.OTHER, 1);
    result.r2 = storage.commit(new RaceStreams.Nothing(generation)).outcome().name();
  }
}
