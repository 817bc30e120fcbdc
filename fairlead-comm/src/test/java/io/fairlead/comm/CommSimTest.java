package io.fairlead.comm;

import static io.fairlead.comm.World.bytes;
import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.comm.spi.ThreadLevel;
import io.fairlead.task.Completion;
import io.fairlead.task.Owner;
import io.fairlead.task.Role;
import io.fairlead.task.TaskScope;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.SplittableRandom;
import java.util.stream.LongStream;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * Random exchanges from one seed: sizes, tags, peers, gates, lent buffers, cancels, bounds and
 * thread levels. Every byte that arrives is checked, and the order of every source and tag. One
 * seed alone: {@code -Dfairlead.seed=N}.
 */
@Timeout(110)
class CommSimTest {
  private static final Duration SOON = Duration.ofSeconds(60);
  private static final List<ThreadLevel> LEVELS = List.of(ThreadLevel.values());
  private static final int TAGS = 3;
  private static final int HEADER = 3 * Long.BYTES;

  /** With {@code -Dfairlead.long=true} also many that are new each time. */
  static LongStream seeds() {
    Long only = Long.getLong("fairlead.seed");
    if (only != null) {
      return LongStream.of(only);
    }
    int fresh = Boolean.getBoolean("fairlead.long") ? 300 : 0;
    return LongStream.concat(
        LongStream.range(0, 60), new SplittableRandom(System.nanoTime()).longs(fresh));
  }

  @ParameterizedTest(name = "seed {0}")
  @MethodSource("seeds")
  void everyByteArrivesInOrder(long seed) {
    SplittableRandom random = new SplittableRandom(seed);
    ThreadLevel level = LEVELS.get(random.nextInt(LEVELS.size()));
    CommConfig config =
        CommConfig.DEFAULT
            .withEager(random.nextInt(3) * 5_000L, 1 + random.nextInt(30))
            .withSlots(1 + random.nextInt(20), 1 + random.nextInt(20))
            .withLentBytes(16_384);
    int size = 1 + random.nextInt(4);
    try (World world = GuardedTransport.world(size, level, config);
        TaskScope<String> scope = world.tasks.scope()) {
      int each = 5 + random.nextInt(60);
      Owner manager = world.tasks.owner("manager", Role.DEVICE_MANAGER);
      for (Comm comm : world.ranks) {
        for (int tag = 0; tag < TAGS; tag++) {
          int fixed = tag;
          long own = random.nextLong();
          scope.fork(() -> new Sender(comm, manager, fixed, own).run(each));
        }
        for (int source = 0; source < size; source++) {
          for (int tag = 0; tag < TAGS; tag++) {
            int from = source;
            int fixed = tag;
            long own = random.nextLong();
            scope.fork(() -> receive(comm, from, fixed, each, own));
          }
        }
        scope.fork(() -> reduce(comm, each));
      }
      scope.join();
      assertThat(GuardedTransport.violations(world)).isEmpty();
      for (Comm comm : world.ranks) {
        assertThat(comm.engine().gates.out()).as("places out").isZero();
        assertThat(comm.engine().lender.bytesLent()).as("bytes lent").isZero();
      }
    }
  }

  /** Sends {@code each} messages of one tag to every rank, in an order of its own. */
  private static final class Sender {
    private final Comm comm;
    private final Owner manager;
    private final int tag;
    private final SplittableRandom random;
    private final List<Completion<?>> sends = new ArrayList<>();

    Sender(Comm comm, Owner manager, int tag, long seed) {
      this.comm = comm;
      this.manager = manager;
      this.tag = tag;
      this.random = new SplittableRandom(seed);
    }

    String run(int each) {
      List<Integer> targets = new ArrayList<>();
      for (int i = 0; i < each; i++) {
        for (int rank = 0; rank < comm.size(); rank++) {
          targets.add(rank);
        }
      }
      Collections.shuffle(targets, new Random(random.nextLong()));
      long[] sequences = new long[comm.size()];
      for (int target : targets) {
        send(target, message(sequences[target]++));
      }
      sends.forEach(send -> send.await(SOON));
      return "sent";
    }

    private void send(int target, MemorySegment message) {
      int cut = random.nextInt((int) message.byteSize() + 1);
      switch (random.nextInt(4)) {
        case 0 -> sends.add(comm.send(target, tag, message));
        case 1 -> sends.add(comm.send(target, tag, message.asSlice(0, cut), message.asSlice(cut)));
        case 2 -> {
          Completion<?> gate =
              random.nextInt(3) == 0 ? opensLate() : manager.call(() -> "computed");
          Blob head = Blob.of(message.asSlice(0, cut));
          sends.add(comm.send(target, tag, gate, head, lent(message, cut)));
        }
        default -> {
          sends.add(comm.send(target, tag, null, lent(message, 0)));
          cancelSomething();
        }
      }
    }

    /** After what the manager has to do in between, so later than gates of later sends. */
    private Completion<?> opensLate() {
      Completion.Source<String> gate = Completion.source();
      manager.call(() -> manager.trySubmit(() -> gate.complete("late")));
      return gate.completion();
    }

    private Blob lent(MemorySegment message, int from) {
      MemorySegment rest = message.asSlice(from);
      LentBuffer buffer = comm.lend(rest.byteSize());
      buffer.write(0, rest);
      return buffer;
    }

    /** Nobody sends or receives these tags, so what is cancelled is never missed. */
    private void cancelSomething() {
      Completion<?> receive = comm.receive(Comm.ANY, TAGS + tag);
      Completion.Source<String> gate = Completion.source();
      Completion<?> gated = comm.send(0, 2 * TAGS, gate.completion(), Blob.of(bytes(9, 1)));
      assertThat(gated.cancel()).isTrue();
      gate.complete("too late");
      assertThat(receive.cancel()).isTrue();
    }

    private MemorySegment message(long sequence) {
      long seed = random.nextLong();
      int length = HEADER + random.nextInt(random.nextInt(10) == 0 ? 15_000 : 200);
      MemorySegment message = bytes(length, seed);
      message.set(ValueLayout.JAVA_LONG_UNALIGNED, 0, sequence);
      message.set(ValueLayout.JAVA_LONG_UNALIGNED, 8, length);
      message.set(ValueLayout.JAVA_LONG_UNALIGNED, 16, seed);
      return message;
    }
  }

  private static String receive(Comm comm, int source, int tag, int each, long seed) {
    SplittableRandom random = new SplittableRandom(seed);
    List<Completion<Received>> posted = new ArrayList<>();
    int next = 0;
    for (int i = 0; i < each; i++) {
      while (posted.size() < each && posted.size() <= next + random.nextInt(4)) {
        posted.add(comm.receive(source, tag));
      }
      check(posted.get(next++).await(SOON), source, i);
    }
    return "received";
  }

  private static void check(Received received, int source, long sequence) {
    assertThat(received.source()).isEqualTo(source);
    MemorySegment data = received.data();
    assertThat(data.get(ValueLayout.JAVA_LONG_UNALIGNED, 0)).isEqualTo(sequence);
    long length = data.get(ValueLayout.JAVA_LONG_UNALIGNED, 8);
    assertThat(data.byteSize()).isEqualTo(length);
    MemorySegment expected = bytes((int) length, data.get(ValueLayout.JAVA_LONG_UNALIGNED, 16));
    assertThat(data.asSlice(HEADER).mismatch(expected.asSlice(HEADER))).isEqualTo(-1);
  }

  private static String reduce(Comm comm, int rounds) {
    double[] sum = new double[1];
    for (int i = 0; i < rounds; i++) {
      sum[0] = comm.rank() + 1;
      comm.allReduce(sum, ReduceOp.SUM).await(SOON);
      assertThat(sum[0]).isEqualTo(comm.size() * (comm.size() + 1) / 2.0);
    }
    return "reduced";
  }
}
