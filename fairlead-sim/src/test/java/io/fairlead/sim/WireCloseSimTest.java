package io.fairlead.sim;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.comm.Comm;
import io.fairlead.comm.CommConfig;
import io.fairlead.comm.CommException;
import io.fairlead.comm.CommStats;
import io.fairlead.comm.spi.ThreadLevel;
import io.fairlead.comm.spi.TransportSettings;
import io.fairlead.comm.spi.Undelivered;
import io.fairlead.comm.wire.WireTransport;
import io.fairlead.task.Completion;
import io.fairlead.task.TaskConfig;
import io.fairlead.task.TaskRuntime;
import io.fairlead.task.TaskScope;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.SplittableRandom;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.ToLongFunction;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * Communicators over simulated wires that are closed while all send, receive and call handlers:
 * every operation ends, and every message is delivered, failed, or named as undelivered.
 */
@Timeout(110)
class WireCloseSimTest {
  private static final Duration SOON = Duration.ofSeconds(60);

  /** Nobody is dead here, however slow the machine. */
  private static final Duration PATIENCE = Duration.ofSeconds(60);

  private static final int SEEDS = Integer.getInteger("fairlead.seeds", 20);

  @ParameterizedTest
  @EnumSource(
      value = ThreadLevel.class,
      names = {"FUNNELED", "SERIALIZED"})
  void closesUnderLoadLoseNothingInSilence(ThreadLevel level) {
    Long only = Long.getLong("fairlead.seed");
    for (int seed = 0; seed < SEEDS; seed++) {
      if (only == null || only == seed) {
        try (TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT)) {
          new Run(tasks, level, seed).closes();
        }
      }
    }
  }

  private static final class Run {
    private final TaskRuntime tasks;
    private final ThreadLevel level;
    private final int seed;
    private final SimNetwork network;
    private final List<Comm> ranks = new ArrayList<>();
    private final Queue<Completion<?>> sends = new ConcurrentLinkedQueue<>();
    private final Queue<Completion<?>> messages = new ConcurrentLinkedQueue<>();
    private final Queue<Completion<?>> receives = new ConcurrentLinkedQueue<>();
    private final AtomicLong handled = new AtomicLong();

    Run(TaskRuntime tasks, ThreadLevel level, int seed) {
      this.tasks = tasks;
      this.level = level;
      this.seed = seed;
      SplittableRandom random = new SplittableRandom(seed);
      int size = 2 + random.nextInt(2);
      SimNetwork.Settings how = SimNetwork.Settings.QUICK.withLevel(level);
      if (random.nextBoolean()) {
        how = how.withWant(512, 1 + random.nextInt(6), 1_000, random.nextInt(4));
      }
      CommConfig config =
          CommConfig.DEFAULT.withEager(seed % 3 == 0 ? 0 : 8_192, 40).withMessageBytes(500);
      TransportSettings settings =
          new TransportSettings(size, config.eagerBytes(), config.eagerMessages());
      network = new SimNetwork(seed, size, how);
      for (int rank = 0; rank < size; rank++) {
        int number = rank;
        ranks.add(
            Comm.open(
                tasks, () -> new WireTransport(network.wire(number), settings, PATIENCE), config));
      }
    }

    void closes() {
      for (Comm comm : ranks) {
        comm.handle(1, (source, header, blobs) -> handled.incrementAndGet());
      }
      try (TaskScope<String> scope = tasks.scope()) {
        for (Comm comm : ranks) {
          scope.fork(() -> load(comm));
          scope.fork(() -> end(comm));
        }
        scope.join();
      }
      ranks.forEach(Comm::close);
      for (Queue<Completion<?>> queue : List.of(sends, messages, receives)) {
        queue.forEach(this::ended);
      }
      assertThat(network.violations()).as("%s, seed %d", level, seed).isEmpty();
      assertThat(done(sends))
          .as("%s, seed %d: sends done = received + named as undelivered", level, seed)
          .isEqualTo(done(receives) + sum(CommStats::discarded) + undelivered("send"));
      assertThat(done(messages))
          .as("%s, seed %d: messages done = handled + named as undelivered", level, seed)
          .isEqualTo(handled.get() + undelivered("message"));
    }

    private String load(Comm comm) {
      SplittableRandom random = new SplittableRandom(31L * seed + comm.rank());
      for (int i = 0; i < 60; i++) {
        int peer = random.nextInt(ranks.size());
        int tag = random.nextInt(3);
        switch (random.nextInt(6)) {
          case 0, 1 -> sends.add(comm.send(peer, tag, memory(random.nextInt(6_000))));
          case 2 -> sends.add(comm.send(peer, tag, memory(8)));
          case 3 -> receives.add(comm.receive(Comm.ANY, tag));
          case 4 -> receives.add(comm.receive(peer, tag));
          default -> messages.add(comm.message(peer, random.nextInt(8) / 7 + 1, memory(8)));
        }
      }
      return "done";
    }

    private static MemorySegment memory(long bytes) {
      return Arena.ofAuto().allocate(Math.max(bytes, 1), 8).asSlice(0, bytes);
    }

    /** Some rank is always closed in the middle of the load of the others. */
    private String end(Comm comm) {
      SplittableRandom random = new SplittableRandom(37L * seed + comm.rank());
      for (int i = random.nextInt(50); i > 0; i--) {
        comm.receive(Comm.ANY, 77); // some time, and more that has to be ended
      }
      comm.close();
      return "closed";
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
