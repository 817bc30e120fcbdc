package io.fairlead.comm;

import static io.fairlead.comm.World.bytes;
import static io.fairlead.comm.World.memory;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.comm.spi.TransportException.Reason;
import io.fairlead.task.Completion;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.Arrays;
import java.util.SplittableRandom;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

@Timeout(100)
class CollectiveTest {
  private static final Duration SOON = Duration.ofSeconds(60);

  @ParameterizedTest
  @CsvSource({
    "1, 1",
    "2, 1",
    "2, 0",
    "3, 7",
    "4, 1",
    "5, 3000",
    "7, 4096",
    "16, 3",
    "17, 1",
    "17, 20",
    "23, 5",
    "20, 11000",
    "33, 2"
  })
  void allReduceAddsInRankOrderWithTheSameBitsEverywhere(int size, int length) {
    double[][] values = new double[size][];
    for (int rank = 0; rank < size; rank++) {
      SplittableRandom random = new SplittableRandom(rank);
      // Sizes from 1e-8 to 1e8: any other order of addition gives other bits.
      values[rank] =
          random.doubles(length).map(v -> (v - 0.5) * Math.pow(10, 16 * v - 8)).toArray();
    }
    double[] expected = values[0].clone();
    for (int rank = 1; rank < size; rank++) {
      for (int i = 0; i < length; i++) {
        expected[i] += values[rank][i];
      }
    }
    try (World world = new World(size)) {
      world.each(
          comm -> {
            for (int round = 0; round < 5; round++) {
              double[] inOut = values[comm.rank()].clone();
              comm.allReduce(inOut, ReduceOp.SUM).await(SOON);
              assertThat(inOut).isEqualTo(expected);
            }
          });
    }
  }

  @Test
  void maxAndMinTakeTheExtremesAndNotANumberWins() {
    try (World world = new World(3)) {
      world.each(
          comm -> {
            double rank = comm.rank();
            double[] max = {rank, -rank, comm.rank() == 1 ? Double.NaN : 0};
            double[] min = max.clone();
            comm.allReduce(max, ReduceOp.MAX).await(SOON);
            comm.allReduce(min, ReduceOp.MIN).await(SOON);
            assertThat(max).containsExactly(2, -0.0, Double.NaN);
            assertThat(min).containsExactly(0, -2, Double.NaN);
          });
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 5, 16, 17, 40})
  void nobodyPassesABarrierBeforeAllHaveCome(int size) {
    int[] arrived = new int[size];
    try (World world = new World(size)) {
      world.each(
          comm -> {
            for (int round = 1; round <= 20; round++) {
              arrived[comm.rank()] = round;
              comm.barrier().await(SOON);
              int now = round;
              assertThat(Arrays.stream(arrived).allMatch(seen -> seen >= now)).isTrue();
              comm.barrier().await(SOON);
            }
          });
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 3, 8, 13})
  void broadcastReachesAllFromEveryRoot(int size) {
    try (World world = new World(size)) {
      world.each(
          comm -> {
            for (int root = 0; root < size; root++) {
              MemorySegment data = comm.rank() == root ? bytes(5000, root) : memory(5000);
              comm.broadcast(root, data).await(SOON);
              assertThat(data.mismatch(bytes(5000, root))).isEqualTo(-1);
            }
          });
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 3, 8, 13})
  void gatherAndAllGatherKeepRankOrder(int size) {
    try (World world = new World(size)) {
      world.each(
          comm -> {
            for (int root = 0; root < size; root++) {
              MemorySegment mine = bytes(100, comm.rank());
              MemorySegment all = comm.rank() == root ? memory(100 * size) : null;
              comm.gather(root, mine, all).await(SOON);
              if (all != null) {
                checkBlocks(all, size);
              }
            }
            MemorySegment all = memory(100 * size);
            comm.allGather(bytes(100, comm.rank()), all).await(SOON);
            checkBlocks(all, size);
          });
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 3, 8, 13})
  void allToAllGivesEachRankItsBlockOfEveryOther(int size) {
    try (World world = new World(size)) {
      world.each(
          comm -> {
            for (int round = 0; round < 3; round++) {
              MemorySegment mine = memory(100 * size);
              MemorySegment all = memory(100 * size);
              for (int to = 0; to < size; to++) {
                mine.asSlice(100L * to, 100).copyFrom(bytes(100, pair(comm.rank(), to)));
              }
              comm.allToAll(mine, all).await(SOON);
              for (int from = 0; from < size; from++) {
                MemorySegment expected = bytes(100, pair(from, comm.rank()));
                assertThat(all.asSlice(100L * from, 100).mismatch(expected)).isEqualTo(-1);
              }
            }
          });
    }
  }

  /** As a transpose of a sparse matrix has them: lengths of each pair's own, also none. */
  @ParameterizedTest
  @ValueSource(ints = {1, 2, 5, 9})
  void allToAllTakesBlocksOfAnyLengths(int size) {
    try (World world = new World(size)) {
      world.each(
          comm -> {
            MemorySegment[] to = new MemorySegment[size];
            MemorySegment[] from = new MemorySegment[size];
            for (int peer = 0; peer < size; peer++) {
              to[peer] = bytes(length(comm.rank(), peer), pair(comm.rank(), peer));
              from[peer] = memory(length(peer, comm.rank()));
            }
            comm.allToAll(to, from).await(SOON);
            for (int peer = 0; peer < size; peer++) {
              MemorySegment expected = bytes(length(peer, comm.rank()), pair(peer, comm.rank()));
              assertThat(from[peer].mismatch(expected)).isEqualTo(-1);
            }
          });
    }
  }

  private static long pair(int from, int to) {
    return 1000L * from + to;
  }

  private static int length(int from, int to) {
    return (from + to) % 3 == 0 ? 0 : 40 * from + 3_000 * to;
  }

  @Test
  void anAllToAllChecksItsBlocks() {
    try (World world = new World(2)) {
      Comm comm = world.rank(0);
      assertThatThrownBy(() -> comm.allToAll(memory(9), memory(9)))
          .isInstanceOf(IllegalArgumentException.class)
          .hasMessageContaining("one length, a multiple of that, not 9 and 9 bytes");
      assertThatThrownBy(() -> comm.allToAll(memory(8), memory(10)))
          .isInstanceOf(IllegalArgumentException.class);
      MemorySegment[] one = {memory(1)};
      assertThatThrownBy(() -> comm.allToAll(one, one))
          .isInstanceOf(IllegalArgumentException.class)
          .hasMessageContaining("a block for each of the 2 ranks, not 1 and 1");
      MemorySegment[] to = {memory(1), memory(1)};
      MemorySegment[] from = {memory(2), memory(1)};
      assertThatThrownBy(() -> comm.allToAll(to, from))
          .isInstanceOf(IllegalArgumentException.class)
          .hasMessageContaining("blocks of rank 0 for itself differ: 1 and 2 bytes");
    }
  }

  @Test
  void ranksWhoseBlocksDisagreeAllFail() {
    try (World world = new World(2)) {
      Completion<?> first = world.rank(0).allToAll(memory(16), memory(16));
      Completion<?> second = world.rank(1).allToAll(memory(18), memory(18));
      assertThatThrownBy(() -> first.await(SOON)).isInstanceOf(CommException.class);
      assertThatThrownBy(() -> second.await(SOON)).isInstanceOf(CommException.class);
    }
  }

  /** Direct, sliced and by a tree. */
  @ParameterizedTest
  @CsvSource({"1, 3", "2, 0", "3, 5", "4, 5000", "17, 9"})
  void everyKindOfValueIsReducedInRankOrder(int size, int length) {
    try (World world = new World(size)) {
      for (ReduceOp op : ReduceOp.values()) {
        float[] floats = floats(0, length);
        long[] longs = longs(0, length);
        int[] ints = ints(0, length);
        for (int rank = 1; rank < size; rank++) {
          reduce(op, floats, floats(rank, length));
          reduce(op, longs, longs(rank, length));
          reduce(op, ints, ints(rank, length));
        }
        world.each(
            comm -> {
              float[] floatsHere = floats(comm.rank(), length);
              long[] longsHere = longs(comm.rank(), length);
              int[] intsHere = ints(comm.rank(), length);
              comm.allReduce(floatsHere, op).await(SOON);
              comm.allReduce(longsHere, op).await(SOON);
              comm.allReduce(intsHere, op).await(SOON);
              assertThat(floatsHere).isEqualTo(floats);
              assertThat(longsHere).isEqualTo(longs);
              assertThat(intsHere).isEqualTo(ints);
            });
      }
    }
  }

  private static void reduce(ReduceOp op, float[] into, float[] with) {
    for (int i = 0; i < into.length; i++) {
      into[i] =
          switch (op) {
            case SUM -> into[i] + with[i];
            case MAX -> Math.max(into[i], with[i]);
            case MIN -> Math.min(into[i], with[i]);
          };
    }
  }

  private static void reduce(ReduceOp op, long[] into, long[] with) {
    for (int i = 0; i < into.length; i++) {
      into[i] =
          switch (op) {
            case SUM -> into[i] + with[i];
            case MAX -> Math.max(into[i], with[i]);
            case MIN -> Math.min(into[i], with[i]);
          };
    }
  }

  private static void reduce(ReduceOp op, int[] into, int[] with) {
    for (int i = 0; i < into.length; i++) {
      into[i] =
          switch (op) {
            case SUM -> into[i] + with[i];
            case MAX -> Math.max(into[i], with[i]);
            case MIN -> Math.min(into[i], with[i]);
          };
    }
  }

  private static float[] floats(int rank, int length) {
    float[] values = new float[length];
    SplittableRandom random = new SplittableRandom(rank);
    for (int i = 0; i < length; i++) {
      values[i] = (float) ((random.nextDouble() - 0.5) * Math.pow(10, random.nextInt(12) - 6));
    }
    return values;
  }

  private static long[] longs(int rank, int length) {
    return new SplittableRandom(rank).longs(length).toArray(); // sums wrap
  }

  private static int[] ints(int rank, int length) {
    return new SplittableRandom(rank).ints(length).toArray();
  }

  private static void checkBlocks(MemorySegment all, int size) {
    for (int rank = 0; rank < size; rank++) {
      assertThat(all.asSlice(100L * rank, 100).mismatch(bytes(100, rank))).isEqualTo(-1);
    }
  }

  @Test
  void collectivesAndMessagesOfTheSameMomentDoNotMix() {
    try (World world = new World(3)) {
      world.each(
          comm -> {
            Comm other = comm.duplicate();
            double[] sum = {comm.rank()};
            double[] otherSum = {10.0 * comm.rank()};
            Completion<Received> received = comm.receive((comm.rank() + 2) % 3, 0);
            Completion<?> first = comm.allReduce(sum, ReduceOp.SUM);
            Completion<?> second = other.allReduce(otherSum, ReduceOp.SUM);
            Completion<?> third = comm.barrier();
            comm.send((comm.rank() + 1) % 3, 0, bytes(9, comm.rank())).await(SOON);
            third.await(SOON);
            second.await(SOON);
            first.await(SOON);
            assertThat(sum).containsExactly(3);
            assertThat(otherSum).containsExactly(30);
            assertThat(received.await(SOON).data().mismatch(bytes(9, (comm.rank() + 2) % 3)))
                .isEqualTo(-1);
          });
    }
  }

  @Test
  void ranksThatDisagreeAllFail() {
    try (World world = new World(3)) {
      Completion<?> first = world.rank(0).allReduce(new double[2], ReduceOp.SUM);
      Completion<?> second = world.rank(1).allReduce(new double[3], ReduceOp.SUM);
      assertThatThrownBy(() -> first.await(SOON)).isInstanceOf(CommException.class);
      assertThatThrownBy(() -> second.await(SOON)).isInstanceOf(CommException.class);
      Completion<?> third = world.rank(2).allReduce(new double[2], ReduceOp.SUM);
      assertThatThrownBy(() -> third.await(SOON))
          .isInstanceOf(CommException.class)
          .hasMessageContaining("all-reduce of 2 values on rank 2");
    }
  }

  @Test
  void aRankThatClosesFailsTheCollectivesOfItsPeers() {
    try (World world = new World(3)) {
      Completion<?> first = world.rank(0).barrier();
      Completion<?> second = world.rank(1).barrier();
      world.rank(2).close();
      assertThatThrownBy(() -> first.await(SOON)).isInstanceOf(CommException.class);
      assertThatThrownBy(() -> second.await(SOON))
          .isInstanceOf(CommException.class)
          .hasStackTraceContaining("rank 2 closed");
      CommException failure = (CommException) world.rank(2).barrier().cause();
      assertThat(failure.reason()).isEqualTo(Reason.CLOSED);
    }
  }

  @Test
  void roomForTheBlocksIsChecked() {
    try (World world = new World(2)) {
      assertThatThrownBy(() -> world.rank(0).allGather(memory(8), memory(15)))
          .isInstanceOf(IllegalArgumentException.class)
          .hasMessageContaining("need 16 bytes, 'all' has 15");
      assertThatThrownBy(() -> world.rank(0).gather(0, memory(8), null))
          .isInstanceOf(IllegalArgumentException.class);
    }
  }
}
