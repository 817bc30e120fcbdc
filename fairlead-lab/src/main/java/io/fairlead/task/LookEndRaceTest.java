package io.fairlead.task;

import io.fairlead.fault.DeadlineExceededException;
import java.time.Duration;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.II_Result;

/**
 * A task that looks in the place of its carrier finds its end, or stops, while another thread is
 * made ready that relies on the searcher for which it counts: both go on. No watcher makes good a
 * wake that is lost. The carriers are the same for all states: they look, or park, in between.
 */
@JCStressTest
@Outcome(id = "1, 1", expect = Expect.ACCEPTABLE, desc = "Both went on.")
@Outcome(
    expect = Expect.FORBIDDEN,
    desc = "One was lost: in a queue, or parked with its end there.")
@State
public class LookEndRaceTest {
  private static final Duration LOST = Duration.ofSeconds(20);

  /** Looks until the end is there: the other thread mostly comes meanwhile. */
  private static final int LOOKS = 200;

  private static final Ends ENDS = new Ends();
  private static final Carriers CARRIERS = new Carriers("race", 2).startUnwatched();

  static {
    CARRIERS.addSource(ENDS, Carriers.NAP_NANOS_MAX);
  }

  /** Is there after some looks, whoever does them. */
  private static final class End implements WaitHelp {
    private final Completion.Source<Integer> source = Completion.source(this);
    private final AtomicInteger looks = new AtomicInteger();

    @Override
    public boolean poll() {
      if (isReady()) {
        ENDS.pending.remove(this);
        source.complete(1);
      }
      return source.completion().isDone();
    }

    @Override
    public boolean isFoundByLooking() {
      return true;
    }

    @Override
    public boolean isReady() {
      return looks.incrementAndGet() > LOOKS;
    }

    @Override
    public boolean block(long nanos) {
      return false;
    }
  }

  private static final class Ends implements PollSource {
    private final ConcurrentLinkedQueue<End> pending = new ConcurrentLinkedQueue<>();

    @Override
    public int poll() {
      int found = 0;
      for (End end : pending) {
        found += end.poll() ? 1 : 0;
      }
      return found;
    }

    @Override
    public boolean hasPending() {
      return !pending.isEmpty();
    }

    @Override
    public boolean mayFind() {
      for (End end : pending) {
        if (end.looks.get() > LOOKS) {
          return true;
        }
      }
      return false;
    }
  }

  @Actor
  public void looks(II_Result result) {
    End end = new End();
    Completion.Source<Integer> ran = Completion.source();
    Runnable body =
        () -> {
          ENDS.pending.add(end);
          ran.complete(end.source.completion().await());
        };
    CARRIERS.thread(body).start();
    result.r1 = seen(ran);
  }

  @Actor
  public void wakes(II_Result result) {
    Completion.Source<Integer> ran = Completion.source();
    CARRIERS.thread(() -> ran.complete(1)).start();
    result.r2 = seen(ran);
  }

  private static int seen(Completion.Source<Integer> ran) {
    try {
      return ran.completion().await(LOST);
    } catch (DeadlineExceededException e) {
      return 0;
    }
  }
}
