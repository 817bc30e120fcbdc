package io.fairlead.sim;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.comm.Blob;
import io.fairlead.comm.Comm;
import io.fairlead.comm.CommConfig;
import io.fairlead.comm.InProcess;
import io.fairlead.comm.Termination;
import io.fairlead.comm.spi.ThreadLevel;
import io.fairlead.comm.spi.TransportSettings;
import io.fairlead.comm.wire.WireTransport;
import io.fairlead.fault.Mutant;
import io.fairlead.task.Completion;
import io.fairlead.task.TaskConfig;
import io.fairlead.task.TaskRuntime;
import io.fairlead.task.TaskScope;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.LongStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * The end of work that spreads, looked for over wires that delay what they carry: found once, never
 * early. One seed alone: {@code -Dfairlead.seed=N}.
 */
@Timeout(110)
class TerminationSimTest {
  private static final Duration SOON = Duration.ofSeconds(60);

  /** Nobody is dead here, however slow the machine. */
  private static final Duration PATIENCE = Duration.ofSeconds(60);

  private static final int DEPTH = 5;

  private static final int SEEDS_TO_FIND_A_MUTANT = 50;

  static LongStream seeds() {
    Long only = Long.getLong("fairlead.seed");
    return only != null
        ? LongStream.of(only)
        : LongStream.range(0, Integer.getInteger("fairlead.seeds", 20));
  }

  /** The contract in one process, where no wire is. */
  @ParameterizedTest
  @EnumSource(TerminationContract.class)
  void inProcess(TerminationContract rule) {
    try (TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT)) {
      for (int size = 1; size <= 3; size++) {
        List<Comm> ranks = InProcess.ranks(tasks, size, CommConfig.DEFAULT);
        keep(tasks, ranks, rule, size);
        ranks.forEach(Comm::close);
      }
    }
  }

  /** So many that waves go along trees: most ranks do not meet the one that closes. */
  @ParameterizedTest
  @EnumSource(names = "CLOSES_.*", mode = EnumSource.Mode.MATCH_ALL)
  void inTrees(TerminationContract rule) {
    try (TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT)) {
      List<Comm> ranks = InProcess.ranks(tasks, 20, CommConfig.DEFAULT);
      keep(tasks, ranks, rule, 20);
      ranks.forEach(Comm::close);
    }
  }

  @ParameterizedTest
  @EnumSource(TerminationContract.class)
  void overWires(TerminationContract rule) {
    try (TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT)) {
      for (long seed = 0; seed < 4; seed++) {
        keepOverWires(tasks, rule, seed);
      }
    }
  }

  @ParameterizedTest(name = "seed {0}")
  @MethodSource("seeds")
  void overWiresThatDelay(long seed) {
    TerminationContract[] rules = TerminationContract.values();
    try (TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT)) {
      keepOverWires(tasks, rules[(int) Math.floorMod(seed, (long) rules.length)], 1_000 + seed);
    }
  }

  private static void keepOverWires(TaskRuntime tasks, TerminationContract rule, long seed) {
    SimNetwork[] network = new SimNetwork[1];
    List<Comm> ranks = wires(tasks, seed, network);
    keep(tasks, ranks, rule, seed);
    ranks.forEach(Comm::close);
    assertThat(network[0].violations()).as("%s, seed %d", rule, seed).isEmpty();
  }

  private static void keep(
      TaskRuntime tasks, List<Comm> ranks, TerminationContract rule, long seed) {
    try (TaskScope<String> scope = tasks.scope()) {
      for (Comm comm : ranks) {
        scope.fork(
            () -> {
              try {
                rule.keep(tasks, comm, seed);
              } catch (AssertionError | Exception e) {
                comm.fail(e); // the others would wait for this one
                throw new AssertionError(rule + ", seed " + seed + ", rank " + comm.rank(), e);
              }
              return "kept";
            });
      }
      scope.join();
    }
  }

  /** Little room and long ways, as the seed decides. */
  private static List<Comm> wires(TaskRuntime tasks, long seed, SimNetwork[] network) {
    SplittableRandom random = new SplittableRandom(seed);
    int size = 2 + random.nextInt(3);
    ThreadLevel level = random.nextBoolean() ? ThreadLevel.SERIALIZED : ThreadLevel.FUNNELED;
    SimNetwork.Settings how =
        SimNetwork.Settings.QUICK
            .withLevel(level)
            .withWant(512, 1 + random.nextInt(6), 1_000, random.nextInt(30));
    CommConfig config = CommConfig.DEFAULT.withEager(8_192, 40).withMessageBytes(500);
    TransportSettings settings =
        new TransportSettings(size, config.eagerBytes(), config.eagerMessages());
    SimNetwork made = new SimNetwork(seed, size, how);
    network[0] = made;
    List<Comm> ranks = new ArrayList<>();
    for (int rank = 0; rank < size; rank++) {
      int number = rank;
      ranks.add(
          Comm.open(tasks, () -> new WireTransport(made.wire(number), settings, PATIENCE), config));
    }
    return ranks;
  }

  // --- a planted bug -----------------------------------------------------------------------------

  /** Messages that count from their arrival: an epoch ends while some are on their way. */
  @Test
  void anEndThatIsFoundEarlyIsSeen() {
    try (Mutant.Handle _ = Mutant.enable("termination.counts-at-delivery");
        TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT)) {
      for (long seed = 0; seed < SEEDS_TO_FIND_A_MUTANT; seed++) {
        if (endsEarly(tasks, seed)) {
          return;
        }
      }
    }
    throw new AssertionError("not found with " + SEEDS_TO_FIND_A_MUTANT + " seeds");
  }

  @ParameterizedTest(name = "seed {0}")
  @MethodSource("seeds")
  void withoutItNoneIs(long seed) {
    try (TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT)) {
      assertThat(endsEarly(tasks, seed)).isFalse();
    }
  }

  /** A tree of messages, each with a blob that has to be asked for. */
  private static boolean endsEarly(TaskRuntime tasks, long seed) {
    int messages = (1 << DEPTH) - 1;
    List<Comm> ranks = wires(tasks, seed, new SimNetwork[1]);
    AtomicLong handled = new AtomicLong();
    AtomicLong seen = new AtomicLong(Long.MAX_VALUE);
    try (TaskScope<String> scope = tasks.scope()) {
      for (Comm comm : ranks) {
        SplittableRandom random = new SplittableRandom(seed + 17L * comm.rank());
        Termination work = comm.termination();
        work.handle(
            1,
            (source, header, blobs) -> {
              handled.incrementAndGet();
              long left = header.get(ValueLayout.JAVA_LONG_UNALIGNED, 0) - 1;
              for (int child = 0; left > 0 && child < 2; child++) {
                send(work, random.nextInt(comm.size()), left);
              }
            });
        scope.fork(
            () -> {
              work.begin();
              if (comm.rank() == 0) {
                send(work, comm.size() - 1, DEPTH);
              }
              Completion<Long> end = work.finish();
              end.onDone(settled -> seen.accumulateAndGet(handled.get(), Math::min));
              end.await(SOON);
              return "found";
            });
      }
      scope.join();
    }
    ranks.forEach(Comm::close);
    return seen.get() < messages;
  }

  private static void send(Termination work, int peer, long left) {
    MemorySegment header = MemorySegment.ofArray(new long[] {left});
    Blob blob = Blob.of(MemorySegment.ofArray(new byte[3_000]));
    work.message(peer, 1, header, blob);
  }
}
