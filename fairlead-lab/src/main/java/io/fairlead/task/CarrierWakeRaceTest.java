package io.fairlead.task;

import io.fairlead.fault.DeadlineExceededException;
import java.time.Duration;
import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.II_Result;

/**
 * Two that make a thread ready against two carriers that search, and park as soon as they find
 * nothing: both threads run. No watcher makes good a wake that is lost. The carriers are the third
 * and fourth party of the race, and the same for all states: they park between most of them.
 */
@JCStressTest
@Outcome(id = "1, 1", expect = Expect.ACCEPTABLE, desc = "Both threads ran.")
@Outcome(expect = Expect.FORBIDDEN, desc = "A wake was lost: a thread lies in a queue.")
@State
public class CarrierWakeRaceTest {
  private static final Duration LOST = Duration.ofSeconds(20);
  private static final Carriers CARRIERS = new Carriers("race", 2).startUnwatched();

  @Actor
  public void first(II_Result result) {
    result.r1 = run();
  }

  @Actor
  public void second(II_Result result) {
    result.r2 = run();
  }

  private static int run() {
    Completion.Source<Integer> ran = Completion.source();
    CARRIERS.thread(() -> ran.complete(1)).start();
    try {
      return ran.completion().await(LOST);
    } catch (DeadlineExceededException e) {
      return 0;
    }
  }
}
