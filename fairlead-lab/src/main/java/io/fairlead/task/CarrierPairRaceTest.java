package io.fairlead.task;

import java.util.concurrent.atomic.AtomicInteger;
import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.II_Result;

/**
 * Two make a thread ready each, and neither thread suspends before it has seen the other run: both
 * carriers have to come. No watcher makes good a wake that is lost.
 */
@JCStressTest
@Outcome(id = "1, 1", expect = Expect.ACCEPTABLE, desc = "Both ran at the same time.")
@Outcome(expect = Expect.FORBIDDEN, desc = "A carrier slept while a thread was ready.")
@State
public class CarrierPairRaceTest {
  private static final long LOST_NANOS = 10_000_000_000L;
  private static final Carriers CARRIERS = new Carriers("pair", 2).startUnwatched();

  private final AtomicInteger there = new AtomicInteger();

  @Actor
  public void first(II_Result result) {
    result.r1 = run();
  }

  @Actor
  public void second(II_Result result) {
    result.r2 = run();
  }

  private int run() {
    Completion.Source<Integer> met = Completion.source();
    CARRIERS.thread(() -> met.complete(meet())).start();
    return met.completion().awaitUninterruptibly();
  }

  private int meet() {
    there.incrementAndGet();
    long end = System.nanoTime() + LOST_NANOS;
    while (there.get() < 2) {
      if (System.nanoTime() - end > 0) {
        return 0;
      }
      Thread.onSpinWait();
    }
    return 1;
  }
}
