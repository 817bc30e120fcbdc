package io.fairlead.sim;

import static java.lang.foreign.ValueLayout.JAVA_LONG_UNALIGNED;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.comm.Blob;
import io.fairlead.comm.Comm;
import io.fairlead.comm.CommException;
import io.fairlead.comm.ReduceOp;
import io.fairlead.comm.Termination;
import io.fairlead.comm.spi.TransportException.Reason;
import io.fairlead.task.Completion;
import io.fairlead.task.TaskRuntime;
import io.fairlead.task.TaskScope;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;
import org.jspecify.annotations.Nullable;

/**
 * What the detection of termination keeps to over every transport. Every rank, in one process or
 * each in its own, runs the same rules in the same order; each looks at its own part.
 */
public enum TerminationContract {
  /** Work that spreads over all ranks is found done once, and not before it is. */
  SPREADS {
    @Override
    void run(Ranks ranks) {
      AtomicLong handled = new AtomicLong();
      AtomicInteger told = new AtomicInteger();
      try (Termination work = ranks.comm.termination()) {
        work.handle(
            WORK,
            (source, header, blobs) -> {
              handled.incrementAndGet();
              spread(ranks, work, left(header));
            });
        work.begin();
        root(ranks, work);
        Completion<Long> end = work.finish();
        end.onDone(settled -> told.incrementAndGet());
        ranks.checkAll(end, handled, ranks.comm.size() * TREE);
        assertThat(told).hasValue(1);
      }
    }

    private void spread(Ranks ranks, Termination work, long left) {
      for (int child = 0; left > 0 && child < 2; child++) {
        work.message(ranks.peer(), WORK, longs(left - 1), ranks.blob());
      }
    }
  },

  /** Tasks that a handler has started count until they end, and so does what they send. */
  TASKS {
    @Override
    void run(Ranks ranks) {
      AtomicLong handled = new AtomicLong();
      BlockingQueue<Started> started = new LinkedBlockingQueue<>();
      try (Termination work = ranks.comm.termination();
          TaskScope<String> scope = ranks.tasks.scope()) {
        for (int task = 0; task < 2; task++) {
          scope.fork(() -> runAll(ranks, work, started));
        }
        work.handle(
            WORK,
            (source, header, blobs) -> {
              handled.incrementAndGet();
              started.add(new Started(work.hold(), left(header)));
            });
        work.begin();
        root(ranks, work);
        try {
          ranks.checkAll(work.finish(), handled, ranks.comm.size() * TREE);
        } finally {
          started.add(Started.NONE);
          started.add(Started.NONE);
        }
        scope.join();
      }
    }

    private static String runAll(Ranks ranks, Termination work, BlockingQueue<Started> started)
        throws InterruptedException {
      for (Started next = started.take(); next.hold != null; next = started.take()) {
        try (Termination.Hold _ = next.hold) {
          for (int child = 0; next.left > 0 && child < 2; child++) {
            work.message(ranks.peer(), WORK, longs(next.left - 1));
          }
        }
      }
      return "done";
    }
  },

  /** A message counts from its submission, also while it waits for a gate that others open. */
  GATES {
    @Override
    void run(Ranks ranks) {
      AtomicLong handled = new AtomicLong();
      BlockingQueue<Completion.Source<Boolean>> gates = new LinkedBlockingQueue<>();
      try (Termination work = ranks.comm.termination();
          TaskScope<String> scope = ranks.tasks.scope()) {
        scope.fork(
            () -> {
              boolean more = true;
              while (more) {
                more = gates.take().complete(true);
              }
              return "all";
            });
        work.handle(
            WORK,
            (source, header, blobs) -> {
              handled.incrementAndGet();
              for (int child = 0; left(header) > 0 && child < 2; child++) {
                Completion.Source<Boolean> gate = Completion.source();
                MemorySegment next = longs(left(header) - 1);
                work.message(ranks.peer(), WORK, gate.completion(), next);
                gates.add(gate);
              }
            });
        work.begin();
        root(ranks, work);
        try {
          ranks.checkAll(work.finish(), handled, ranks.comm.size() * TREE);
        } finally {
          Completion.Source<Boolean> last = Completion.source();
          last.complete(true);
          gates.add(last);
        }
        scope.join();
      }
    }
  },

  /** Epochs follow each other without a meeting of ranks, and none sees messages of another. */
  EPOCHS {
    @Override
    void run(Ranks ranks) {
      int epochs = 20;
      AtomicLong epoch = new AtomicLong(-1);
      AtomicLongArray handled = new AtomicLongArray(epochs);
      AtomicInteger strangers = new AtomicInteger();
      long[] found = new long[epochs];
      try (Termination work = ranks.comm.termination()) {
        work.handle(
            WORK,
            (source, header, blobs) -> {
              long of = header.get(JAVA_LONG_UNALIGNED, 8);
              if (of != epoch.get()) {
                strangers.incrementAndGet();
              }
              handled.incrementAndGet((int) of);
              if (left(header) > 0) {
                work.message(ranks.peer(), WORK, longs(left(header) - 1, of));
              }
            });
        for (int i = 0; i < epochs; i++) {
          epoch.set(i);
          work.begin();
          for (int root = ranks.below(3); root > 0; root--) {
            work.message(ranks.peer(), WORK, longs(ranks.below(3), i), ranks.blob());
          }
          found[i] = work.finish().await(SOON);
        }
        long[] sums = new long[epochs];
        for (int i = 0; i < epochs; i++) {
          sums[i] = handled.get(i);
        }
        ranks.comm.allReduce(sums, ReduceOp.SUM).await(SOON);
        assertThat(found).isEqualTo(sums);
        assertThat(strangers).hasValue(0);
      }
    }
  },

  /** Several detections go on at once, and none waits for another. */
  SEVERAL {
    @Override
    void run(Ranks ranks) {
      List<Termination> all = new ArrayList<>();
      List<AtomicLong> handled = new ArrayList<>();
      for (int i = 0; i < 3; i++) {
        Termination work = ranks.comm.termination();
        AtomicLong count = new AtomicLong();
        work.handle(
            WORK,
            (source, header, blobs) -> {
              count.incrementAndGet();
              if (left(header) > 0) {
                work.message(ranks.peer(), WORK, longs(left(header) - 1));
              }
            });
        all.add(work);
        handled.add(count);
      }
      all.forEach(Termination::begin);
      all.forEach(work -> work.message(ranks.peer(), WORK, longs(9)));
      for (int i = 2; i >= 0; i--) {
        ranks.checkAll(all.get(i).finish(), handled.get(i), ranks.comm.size() * 10L);
      }
      all.forEach(Termination::close);
    }
  },

  /** Data that nobody receives does not stand in the way. */
  FLOOD {
    @Override
    void run(Ranks ranks) {
      int next = (ranks.comm.rank() + 1) % ranks.comm.size();
      int before = (ranks.comm.rank() + ranks.comm.size() - 1) % ranks.comm.size();
      List<Completion<?>> flood = new ArrayList<>();
      for (int i = 0; i < FLOOD_MESSAGES; i++) {
        flood.add(ranks.comm.send(next, 1, MemorySegment.ofArray(new byte[4_000])));
      }
      try (Termination work = ranks.comm.termination()) {
        work.begin();
        assertThat(work.finish().await(SOON)).isZero();
        for (int i = 0; i < FLOOD_MESSAGES; i++) {
          ranks.comm.receive(before, 1).await(SOON);
        }
        flood.forEach(send -> send.await(SOON));
        ranks.comm.barrier().await(SOON);
      }
    }
  },

  /** A message that was not sent is said on every rank; the next epoch goes well. */
  FAILED {
    @Override
    void run(Ranks ranks) {
      AtomicLong handled = new AtomicLong();
      try (Termination work = ranks.comm.termination()) {
        work.handle(WORK, (source, header, blobs) -> handled.incrementAndGet());
        work.begin();
        if (ranks.comm.rank() == 0) {
          Completion<?> gate = Completion.failed(new IllegalStateException("no flour"));
          work.message(ranks.comm.size() - 1, WORK, gate, longs(0));
          work.track(Completion.failed(new IllegalStateException("no yeast")));
          work.message(ranks.comm.size() - 1, WORK, longs(0));
        }
        Completion<Long> end = work.finish();
        assertThatThrownBy(() -> end.await(SOON))
            .isInstanceOfSatisfying(
                CommException.class, e -> assertThat(e.reason()).isEqualTo(Reason.INCOMPLETE))
            .hasMessageContaining("2 messages or tracked completions")
            .message()
            .containsPattern(
                ranks.comm.rank() == 0 ? "here first: .*no (flour|yeast)" : "none at this rank");
        assertThat(handled).hasValue(ranks.comm.rank() == ranks.comm.size() - 1 ? 1 : 0);
        handled.set(0); // before others can send for the next one
        work.begin();
        work.message(ranks.peer(), WORK, longs(0));
        ranks.checkAll(work.finish(), handled, ranks.comm.size());
      }
    }
  },

  /** A message that is cancelled in time counts no more. */
  CANCELLED {
    @Override
    void run(Ranks ranks) {
      try (Termination work = ranks.comm.termination()) {
        AtomicLong handled = new AtomicLong();
        work.handle(WORK, (source, header, blobs) -> handled.incrementAndGet());
        work.begin();
        Completion.Source<Boolean> never = Completion.source();
        Completion<?> sent = work.message(ranks.peer(), WORK, never.completion(), longs(0));
        Completion<Long> end = work.finish();
        assertThat(end.isDone()).isFalse();
        sent.cancel();
        assertThat(end.await(SOON)).isEqualTo(ranks.comm.size());
        assertThat(handled).hasValue(0);
        ranks.comm.barrier().await(SOON);
      }
    }
  },

  /** A rank that closes while it looks for the end itself ends this detection, and nothing else. */
  CLOSES_IN_A_WAVE {
    @Override
    void run(Ranks ranks) {
      boolean first = ranks.comm.rank() == 0;
      boolean closes = ranks.comm.rank() == ranks.comm.size() - 1;
      Termination work = ranks.comm.termination();
      work.begin();
      ranks.comm.barrier().await(SOON); // a rank that hears of a close cannot begin
      Termination.@Nullable Hold hold = first ? work.hold() : null; // so that no wave can end
      Completion<Long> end = work.finish();
      if (closes) {
        work.close();
      }
      ranks.checkClosed(end, closes);
      if (hold != null) {
        hold.close();
      }
      work.close();
      ranks.checkGoesOn();
    }
  },

  /** So does one that closes while others look, and it works on: nobody waits for it. */
  CLOSES_AT_WORK {
    @Override
    void run(Ranks ranks) {
      boolean closes = ranks.comm.rank() == ranks.comm.size() - 1;
      Termination work = ranks.comm.termination();
      work.begin();
      ranks.comm.barrier().await(SOON); // as above
      Termination.@Nullable Hold hold = closes ? work.hold() : null;
      Completion<Long> end = work.finish();
      if (hold != null) {
        work.close();
        hold.close();
      }
      ranks.checkClosed(end, closes);
      work.close();
      ranks.checkGoesOn();
    }
  },

  /** Who has seen the end may close at once: the others see it too, but have no other epoch. */
  CLOSES_AFTER_THE_END {
    @Override
    void run(Ranks ranks) {
      for (int i = 0; i < 5; i++) {
        Termination work = ranks.comm.termination();
        AtomicLong handled = new AtomicLong();
        work.handle(WORK, (source, header, blobs) -> handled.incrementAndGet());
        work.begin();
        work.message(ranks.peer(), WORK, longs(0));
        assertThat(work.finish().await(SOON)).isEqualTo(ranks.comm.size());
        work.close();
        assertThatThrownBy(work::begin).isInstanceOf(IllegalStateException.class);
      }
      ranks.checkGoesOn();
    }
  },

  /** Work comes of work: what does not is refused, with what to do. */
  MISUSE {
    @Override
    void run(Ranks ranks) {
      try (Termination work = ranks.comm.termination()) {
        assertThatThrownBy(() -> work.message(0, WORK, longs(0)))
            .isInstanceOf(IllegalStateException.class)
            .hasMessageContaining("begin() first");
        assertThatThrownBy(work::finish).hasMessageContaining("begin() first");
        work.begin();
        assertThatThrownBy(work::begin).hasMessageContaining("has not ended here");
        assertThatThrownBy(() -> work.message(ranks.comm.size(), WORK, longs(0)))
            .isInstanceOf(IllegalArgumentException.class);
        Completion<Long> end = work.finish();
        assertThatThrownBy(work::hold).hasMessageContaining("under a hold");
        assertThatThrownBy(work::finish).isInstanceOf(IllegalStateException.class);
        assertThat(end.await(SOON)).isZero();
        ranks.comm.barrier().await(SOON);
      }
    }
  };

  private static final int WORK = 7;
  private static final int FLOOD_MESSAGES = 300;
  private static final int DEPTH = 5;

  /** Messages that come of one with {@link #DEPTH} left, itself counted. */
  private static final long TREE = (1 << (DEPTH + 1)) - 1;

  private static final Duration SOON = Duration.ofSeconds(60);

  abstract void run(Ranks ranks) throws Exception;

  /**
   * Runs this rule on one rank; every rank does.
   *
   * @param seed the same on every rank
   * @throws AssertionError if it is not kept
   */
  public void keep(TaskRuntime tasks, Comm comm, long seed) throws Exception {
    run(new Ranks(tasks, comm, new SplittableRandom(seed + 31L * comm.rank())));
  }

  /** A task that a handler wants to be run; without a hold: no more come. */
  private record Started(Termination.@Nullable Hold hold, long left) {
    static final Started NONE = new Started(null, 0);
  }

  private static void root(Ranks ranks, Termination work) {
    work.message(ranks.peer(), WORK, longs(DEPTH));
  }

  private static long left(MemorySegment header) {
    return header.get(JAVA_LONG_UNALIGNED, 0);
  }

  private static MemorySegment longs(long... values) {
    return MemorySegment.ofArray(values);
  }

  /** This rank among the others. Any thread. */
  static final class Ranks {
    final TaskRuntime tasks;
    final Comm comm;
    private final SplittableRandom random;

    Ranks(TaskRuntime tasks, Comm comm, SplittableRandom random) {
      this.tasks = tasks;
      this.comm = comm;
      this.random = random;
    }

    synchronized int below(int bound) {
      return random.nextInt(bound);
    }

    int peer() {
      return below(comm.size());
    }

    /** Mostly short; some go at once, some have to be asked for. */
    Blob blob() {
      return Blob.of(MemorySegment.ofArray(new byte[below(8) == 0 ? below(20_000) : below(20)]));
    }

    /**
     * An epoch that no rank can end, since one of them closes; one that heard of it may have closed
     * before a third one hears.
     */
    void checkClosed(Completion<Long> end, boolean byThisRank) {
      assertThatThrownBy(() -> end.await(SOON))
          .isInstanceOfSatisfying(
              CommException.class,
              e ->
                  assertThat(e.reason())
                      .as("on rank %d: %s", comm.rank(), e)
                      .isEqualTo(byThisRank ? Reason.CLOSED : Reason.PEER_CLOSED))
          .hasMessageMatching(".*rank \\d+ closed.*");
    }

    /** The ranks reach each other, and find the end of other work. */
    void checkGoesOn() {
      comm.barrier().await(SOON);
      AtomicLong handled = new AtomicLong();
      try (Termination again = comm.termination()) {
        again.handle(WORK, (source, header, blobs) -> handled.incrementAndGet());
        again.begin();
        again.message(peer(), WORK, longs(0));
        checkAll(again.finish(), handled, comm.size());
      }
    }

    /** When the end is found all is handled, and nothing comes after. */
    void checkAll(Completion<Long> end, AtomicLong handled, long expected) {
      assertThat(end.await(SOON)).as("messages on rank %d", comm.rank()).isEqualTo(expected);
      long here = handled.get();
      long[] sum = {here};
      comm.allReduce(sum, ReduceOp.SUM).await(SOON);
      assertThat(sum[0]).as("handled at the end, seen by rank %d", comm.rank()).isEqualTo(expected);
      comm.barrier().await(SOON);
      assertThat(handled).hasValue(here);
    }
  }
}
