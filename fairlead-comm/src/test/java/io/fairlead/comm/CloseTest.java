package io.fairlead.comm;

import static io.fairlead.comm.World.bytes;
import static io.fairlead.comm.World.longs;
import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.comm.spi.ThreadLevel;
import io.fairlead.comm.spi.Undelivered;
import io.fairlead.task.Completion;
import io.fairlead.task.TaskConfig;
import io.fairlead.task.TaskRuntime;
import io.fairlead.task.TaskScope;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.SplittableRandom;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.ToLongFunction;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Closes and failures under load: every operation ends, and every message is accounted for. */
@Timeout(300)
class CloseTest {
  private static final Duration SOON = Duration.ofSeconds(60);

  /** For each close (row comm.close); hardly one takes a hundredth of it. */
  private static final Duration CLOSE_MAX = Duration.ofSeconds(5);

  @Test
  void aThousandClosesUnderLoadLoseNothingInSilence() {
    try (TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT)) {
      for (int seed = 0; seed < 1_000; seed++) {
        new Run(tasks, seed).closes();
      }
    }
  }

  @Test
  void aFailureUnderLoadEndsEverything() {
    try (TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT)) {
      for (int seed = 0; seed < 200; seed++) {
        new Run(tasks, seed).fails();
      }
    }
  }

  @ParameterizedTest
  @EnumSource(ThreadLevel.class)
  void closesUnderLoadAtEveryThreadLevel(ThreadLevel level) {
    for (int seed = 0; seed < 30; seed++) {
      World world = GuardedTransport.world(3, level, Run.config(seed));
      new Run(world.tasks, seed, world.ranks).closes();
      assertThat(GuardedTransport.violations(world)).isEmpty();
      world.close();
    }
  }

  @Test
  void closingAfterTheRuntimeDoesNotHang() {
    World world = new World(2);
    world.rank(0).handle(1, (source, header, blobs) -> {});
    Completion<Received> pending = world.rank(0).receive(1, 1);
    world.tasks.close();
    world.ranks.forEach(Comm::close);
    assertThat(pending.cause()).isInstanceOf(CommException.class);
  }

  /** One world of ranks: all send, receive and call handlers, until all are closed. */
  private static final class Run {
    private final int seed;
    private final TaskRuntime tasks;
    private final List<Comm> ranks;
    private final Queue<Completion<?>> sends = new ConcurrentLinkedQueue<>();
    private final Queue<Completion<?>> messages = new ConcurrentLinkedQueue<>();
    private final Queue<Completion<?>> receives = new ConcurrentLinkedQueue<>();
    private final AtomicLong handled = new AtomicLong();

    Run(TaskRuntime tasks, int seed) {
      this(
          tasks,
          seed,
          InProcess.ranks(tasks, 2 + new SplittableRandom(seed).nextInt(3), config(seed)));
    }

    Run(TaskRuntime tasks, int seed, List<Comm> ranks) {
      this.seed = seed;
      this.tasks = tasks;
      this.ranks = ranks;
    }

    /** Little room, or none: so that senders wait too. */
    static CommConfig config(int seed) {
      return CommConfig.DEFAULT.withEager(seed % 3 == 0 ? 0 : 4096, 20).withMessageBytes(500);
    }

    void closes() {
      run(false);
      long delivered = done(receives) + sum(CommStats::discarded);
      assertThat(done(sends))
          .as("seed %d: sends done = received + named as undelivered", seed)
          .isEqualTo(delivered + undelivered("send"));
      assertThat(done(messages))
          .as("seed %d: messages done = handled + named as undelivered", seed)
          .isEqualTo(handled.get() + undelivered("message"));
    }

    void fails() {
      run(true);
    }

    private void run(boolean failing) {
      for (Comm comm : ranks) {
        if (comm.rank() % 2 == 1) {
          comm.handle(1, (source, header, blobs) -> handled.incrementAndGet());
        }
      }
      try (TaskScope<String> scope = tasks.scope()) {
        for (Comm comm : ranks) {
          scope.fork(() -> load(comm));
          scope.fork(() -> end(comm, failing && comm.rank() == 1));
        }
        scope.join();
      }
      for (Comm comm : ranks) {
        close(comm);
      }
      for (Queue<Completion<?>> queue : List.of(sends, messages, receives)) {
        queue.forEach(this::ended);
      }
    }

    private String load(Comm comm) {
      SplittableRandom random = new SplittableRandom(31L * seed + comm.rank());
      for (int i = 0; i < 40; i++) {
        int peer = random.nextInt(ranks.size());
        switch (random.nextInt(6)) {
          case 0, 1 ->
              sends.add(comm.send(peer, random.nextInt(3), bytes(random.nextInt(6000), 1)));
          case 2 -> receives.add(comm.receive(Comm.ANY, random.nextInt(3)));
          case 3 -> receives.add(comm.receive(peer, random.nextInt(3)));
          case 4 -> messages.add(comm.message(peer, random.nextInt(8) / 7 + 1, longs(i)));
          default -> {
            Completion.Source<String> gate = Completion.source();
            sends.add(comm.send(peer, 1, gate.completion(), Blob.of(longs(i, i))));
            if (random.nextInt(4) > 0) {
              gate.complete("open");
            }
          }
        }
      }
      return "done";
    }

    /** Some rank is always closed in the middle of the load of the others. */
    private String end(Comm comm, boolean failing) {
      SplittableRandom random = new SplittableRandom(37L * seed + comm.rank());
      for (int i = random.nextInt(50); i > 0; i--) {
        comm.receive(Comm.ANY, 77); // some time, and more that has to be ended
      }
      if (failing) {
        comm.fail(new IllegalStateException("broken"));
      }
      close(comm);
      return "closed";
    }

    private void close(Comm comm) {
      long began = System.nanoTime();
      comm.close();
      assertThat(Duration.ofNanos(System.nanoTime() - began))
          .as("seed %d: the close of rank %d", seed, comm.rank())
          .isLessThan(CLOSE_MAX);
    }

    private void ended(Completion<?> completion) {
      Completion.Source<Throwable> cause = Completion.source();
      completion.onDone(settled -> cause.complete(settled.cause()));
      Throwable failure = cause.completion().await(SOON);
      if (failure != null) {
        assertThat(failure).isInstanceOf(CommException.class).hasMessageContaining(" on rank ");
      }
    }

    private static long done(Queue<Completion<?>> completions) {
      return completions.stream().filter(c -> c.state() == Completion.State.DONE).count();
    }

    private long undelivered(String kind) {
      List<Undelivered> all = new ArrayList<>();
      ranks.forEach(comm -> all.addAll(comm.undelivered()));
      return all.stream().filter(message -> message.kind().equals(kind)).count();
    }

    private long sum(ToLongFunction<CommStats> counter) {
      return ranks.stream().map(Comm::stats).mapToLong(counter).sum();
    }
  }
}
