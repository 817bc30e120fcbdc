package io.fairlead.lab.comm;

import io.fairlead.comm.Comm;
import io.fairlead.comm.CommConfig;
import io.fairlead.comm.InProcess;
import io.fairlead.fault.DeadlineExceededException;
import io.fairlead.task.Completion;
import io.fairlead.task.TaskConfig;
import io.fairlead.task.TaskRuntime;
import io.fairlead.task.WaitMode;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicReferenceArray;
import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.II_Result;

/**
 * Two that give work to a communication thread which parks as soon as it is idle: the handlers of
 * both run. The thread is the third party of the race, and one for all states: it parks between
 * most of them.
 */
@JCStressTest
@Outcome(id = "1, 2", expect = Expect.ACCEPTABLE, desc = "Both messages were handled.")
@Outcome(expect = Expect.FORBIDDEN, desc = "A wake was lost: a message lies in the queue.")
@State
public class CommDoorbellRaceTest {
  private static final Duration LOST = Duration.ofSeconds(20);

  /** No spins, no yields: park at once. */
  private static final TaskConfig EAGER = new TaskConfig(WaitMode.NONBLOCKING, 16, 0, 0, 1_000);

  /** States that are under way at once, at most; jcstress makes them by the ten thousand. */
  private static final int PLACES = 1 << 20;

  private static final AtomicReferenceArray<Completion.Source<Integer>> HANDLED =
      new AtomicReferenceArray<>(PLACES);

  private static final Comm COMM = comm();

  private static Comm comm() {
    Comm comm = InProcess.ranks(TaskRuntime.open(EAGER), 1, CommConfig.DEFAULT).getFirst();
    comm.handle(
        1,
        (source, header, blobs) -> {
          int place = header.get(ValueLayout.JAVA_INT_UNALIGNED, 0);
          HANDLED.getAndSet(place, null).complete(header.get(ValueLayout.JAVA_INT_UNALIGNED, 4));
        });
    return comm;
  }

  @Actor
  public void first(II_Result result) {
    result.r1 = send(1);
  }

  @Actor
  public void second(II_Result result) {
    result.r2 = send(2);
  }

  private static int send(int value) {
    Completion.Source<Integer> handled = Completion.source();
    int place = System.identityHashCode(handled) % PLACES;
    while (!HANDLED.compareAndSet(place, null, handled)) {
      place = (place + 1) % PLACES;
    }
    COMM.message(0, 1, MemorySegment.ofArray(new int[] {place, value}));
    try {
      return handled.completion().await(LOST);
    } catch (DeadlineExceededException e) {
      return -1;
    }
  }
}
