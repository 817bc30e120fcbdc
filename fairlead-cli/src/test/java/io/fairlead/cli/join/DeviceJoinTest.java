package io.fairlead.cli.join;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.cli.Progress;
import io.fairlead.memory.MemoryStats;
import io.fairlead.memory.SpillConfig;
import io.fairlead.runtime.Fairlead;
import io.fairlead.runtime.FairleadConfig;
import java.io.PrintWriter;
import java.io.Writer;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** The join on the host device: the groups of plain Java, however it is cut, and of all pairs. */
@Timeout(120)
class DeviceJoinTest {
  private static final int AS_SUITS = -1;
  private static final Progress SILENT = Progress.to(new PrintWriter(Writer.nullWriter()), false);

  @TempDir Path folder;

  private static FairleadConfig host() {
    return FairleadConfig.defaults().withDevice("host").withHostWorkers(3);
  }

  private record Result(Groups groups, DeviceJoin.Run run) {}

  private static Result join(Table left, Table right, JoinPlan plan) {
    try (Fairlead fairlead = Fairlead.open(host())) {
      return join(fairlead, left, right, plan);
    }
  }

  private static Result join(Fairlead fairlead, Table left, Table right, JoinPlan plan) {
    List<long[]> parts = Collections.synchronizedList(new ArrayList<>());
    DeviceJoin.Run run = new DeviceJoin(fairlead, plan, left, right, SILENT).run(parts::add);
    MemoryStats memory = fairlead.device().memory();
    assertThat(memory.inUse() - memory.pendingFree()).as("bytes left open").isZero();
    return new Result(Groups.merged(parts, Groups.stride(left, right)), run);
  }

  private static JoinPlan planned(Table left, Table right, long bytes, int tasks, int bits) {
    return JoinPlan.of(left, right, bytes, tasks, bits, JoinPlan.COPY_BYTES_MIN_OF_HOST);
  }

  @ParameterizedTest
  @CsvSource({
    "1, 0, 1",
    "2, 0, 8",
    "3, 0.5, 3",
    "4, 0.99, 8",
    "5, 1, 2",
    "6, 1.5, 16",
    "7, 10, 4",
    "8, 0, 64"
  })
  void anySeedSkewAndNumberOfTasksGivesTheGroupsOfPlainJava(long seed, double skew, int tasks) {
    Table left = Tables.generated("left", 20_011, 5_000, skew, seed);
    Table right = Tables.generated("right", 30_017, 6_000, skew, -seed);
    Groups expected = PlainJoin.of(left, right);
    assertThat(expected.count()).isPositive();
    JoinPlan plan = planned(left, right, 1 << 20, tasks, AS_SUITS);
    assertThat(join(left, right, plan.withTasks(tasks)).groups()).isEqualTo(expected);
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 1, 2, 5, 10})
  void anyCutGivesTheSame(int bits) {
    Table left = Tables.generated("left", 9_973, 700, 0.7, 3);
    Table right = Tables.generated("right", 10_007, 900, 0.7, 4);
    Groups expected = PlainJoin.of(left, right);
    for (int bytes : new int[] {1, 1 << 10, 1 << 14, 1 << 20}) {
      JoinPlan plan = new JoinPlan(bits, Math.max(bytes, 1 << 12), Math.max(bytes, 1 << 8), 4);
      assertThat(join(left, right, plan).groups()).as("%s", plan).isEqualTo(expected);
    }
  }

  @ParameterizedTest
  @CsvSource({
    "0,0", "0,1", "1,0", "1,1", "2,1", "1,3", "7,7", "31,33", "63,64", "127,1", "255,257", "513,511"
  })
  void smallTablesGiveWhatAllPairsGive(int leftRows, int rightRows) {
    Table left = Tables.generated("left", leftRows, 5, 0.5, leftRows);
    Table right = Tables.generated("right", rightRows, 5, 0.5, rightRows);
    JoinPlan plan = planned(left, right, 1 << 16, 3, 2);
    Groups found = join(left, right, plan.withTasks(3)).groups();
    assertThat(found).isEqualTo(PlainJoin.of(left, right));
    assertThat(Tables.pairs(found, left, right)).isEqualTo(Tables.pairs(left, right));
  }

  /** One row in a chunk, one row in a piece, and a partition for each of a few. */
  @Test
  void theSmallestChunksAndPiecesDo() {
    Table left = Tables.generated("left", 61, 9, 0, 1);
    Table right = Tables.generated("right", 59, 9, 0, 2);
    Groups found = join(left, right, new JoinPlan(3, 1, 1, 5)).groups();
    assertThat(found).isEqualTo(PlainJoin.of(left, right));
  }

  /** The key that marks a free entry is a key as any other, and so are its neighbours. */
  @Test
  void theKeysAtTheEndsOfALongAreJoined() {
    long[] keys = {Long.MIN_VALUE, Long.MIN_VALUE + 1, -1, 0, 1, Long.MAX_VALUE, Long.MIN_VALUE};
    long[] rows = new long[2 * keys.length];
    for (int i = 0; i < keys.length; i++) {
      rows[2 * i] = keys[i];
      rows[2 * i + 1] = i + 1L;
    }
    Table table = Tables.of(2, rows);
    Groups found = join(table, table, new JoinPlan(1, 64, 64, 2)).groups();
    assertThat(Tables.pairs(found, table, table)).isEqualTo(Tables.pairs(table, table));
    assertThat(found.key(0)).isEqualTo(Long.MIN_VALUE);
    assertThat(found.joinedRows(0)).isEqualTo(4);
    Table without = Tables.of(2, 5, 1);
    assertThat(join(table, without, new JoinPlan(0, 64, 64, 1)).groups().count()).isZero();
    assertThat(join(without, table, new JoinPlan(0, 64, 64, 1)).groups().count()).isZero();
  }

  @ParameterizedTest
  @CsvSource({"1,1", "1,3", "3,1", "4,4", "1,9"})
  void anyNumberOfWordsIsSummed(int leftWords, int rightWords) {
    Table left = random(201, leftWords, 1);
    Table right = random(199, rightWords, 2);
    Groups found = join(left, right, new JoinPlan(2, 1 << 10, 1 << 9, 4)).groups();
    assertThat(Tables.pairs(found, left, right)).isEqualTo(Tables.pairs(left, right));
  }

  private static Table random(int rows, int words, long seed) {
    Random random = new Random(seed);
    long[] all = new long[rows * words];
    Arrays.setAll(all, at -> at % words == 0 ? random.nextInt(40) - 20 : random.nextLong() >> 20);
    return Tables.of(words, all);
  }

  /** All left rows in one partition, with as many keys: its table has to grow. */
  @Test
  void aTableThatIsTooSmallGrows() {
    List<Long> rows = new ArrayList<>();
    for (long key = 0; rows.size() < 2 * 3_000; key++) {
      if (KeyHash.partition(KeyHash.of(key), 6) == 17) {
        rows.add(key);
        rows.add(key % 100);
      }
    }
    Table left = Tables.of(2, rows.stream().mapToLong(Long::longValue).toArray());
    Result found = join(left, left, new JoinPlan(6, 1 << 12, 1 << 12, 4));
    assertThat(found.run().rebuilt()).isPositive();
    assertThat(found.groups()).isEqualTo(PlainJoin.of(left, left));
    assertThat(found.groups().count()).isEqualTo(3_000);
  }

  /** One frequent key fills a partition with rows, and takes one entry. */
  @Test
  void aFrequentKeyNeedsNoLargeTable() {
    long[] rows = new long[2 * 40_000];
    for (int i = 0; i < rows.length; i += 2) {
      rows[i] = i % 8 == 0 ? i : 42;
      rows[i + 1] = i;
    }
    Table left = Tables.of(2, rows);
    Result found = join(left, left, new JoinPlan(4, 1 << 14, 1 << 14, 4));
    assertThat(found.run().rebuilt()).isZero();
    assertThat(found.groups()).isEqualTo(PlainJoin.of(left, left));
  }

  /** Whatever has no room is spilled, and comes back, and nothing of it shows in the groups. */
  @ParameterizedTest
  @CsvSource({"1, 0, 1, 4", "2, 0, 8, 4", "3, 1, 8, 8", "4, 0.5, 16, 4", "5, 2, 4, 6"})
  void aFractionOfTheMemoryGivesTheSame(long seed, double skew, int tasks, int share) {
    Table left = Tables.generated("left", 120_011, 30_000, skew, seed);
    Table right = Tables.generated("right", 140_017, 35_000, skew, -seed);
    long bytes = (left.bytes() + right.bytes()) / share;
    JoinPlan plan = planned(left, right, bytes, tasks, AS_SUITS);
    try (Fairlead fairlead = Fairlead.open(limited(bytes))) {
      Groups found = join(fairlead, left, right, plan.withTasks(tasks)).groups();
      MemoryStats memory = fairlead.device().memory();
      assertThat(found).isEqualTo(PlainJoin.of(left, right));
      assertThat(memory.peak()).isLessThanOrEqualTo(bytes);
      assertThat(memory.spills()).isPositive();
      assertThat(memory.returns()).isPositive();
      assertThat(memory.onHost()).as("bytes of images left").isZero();
    }
  }

  /** The same, with most of it on disk. */
  @ParameterizedTest
  @CsvSource({"1, 0, 3", "2, 1, 8"})
  void aFractionOfTheHostsMemoryGivesTheSame(long seed, double skew, int tasks) {
    Table left = Tables.generated("left", 100_003, 25_000, skew, seed);
    Table right = Tables.generated("right", 90_001, 25_000, skew, -seed);
    long bytes = (left.bytes() + right.bytes()) / 4;
    long hostBytes = 512 << 10;
    JoinPlan plan = planned(left, right, bytes, tasks, 6);
    FairleadConfig config = limited(bytes);
    SpillConfig spill =
        config.memory().spill().withHostBytesMax(hostBytes).withDisk(folder, 1 << 28);
    try (Fairlead fairlead = Fairlead.open(config.withMemory(config.memory().withSpill(spill)))) {
      Result found = join(fairlead, left, right, plan.withTasks(tasks));
      assertThat(found.groups()).isEqualTo(PlainJoin.of(left, right));
      assertThat(found.run().onDiskMax()).isPositive();
      assertThat(found.run().onHostMax()).isLessThanOrEqualTo(hostBytes);
    }
    assertThat(folder).isEmptyDirectory();
  }

  private static FairleadConfig limited(long bytes) {
    FairleadConfig config = host();
    return config.withMemory(config.memory().withLimit(bytes).withSpill(SpillConfig.TO_HOST));
  }

  @Test
  void aDeviceWithoutRoomForOnePartitionIsToldWhatItNeeds() {
    requireTooSmall(1 << 21, new JoinPlan(0, 1 << 14, 1 << 14, 1), "partition 0");
    requireTooSmall(1 << 20, new JoinPlan(4, 1 << 20, 1 << 14, 1), "sorting a chunk");
  }

  private static void requireTooSmall(long bytes, JoinPlan plan, String what) {
    Table table = Tables.generated("table", 50_000, 50_000, 0, 1);
    try (Fairlead fairlead = Fairlead.open(host().withDeviceMemory(bytes))) {
      assertThatThrownBy(() -> join(fairlead, table, table, plan))
          .isInstanceOf(DeviceTooSmallException.class)
          .hasMessageContaining(what)
          .hasMessageMatching("(?s).*at least --device-memory \\d+K.*--partitions.*");
      MemoryStats memory = fairlead.device().memory();
      assertThat(memory.inUse() - memory.pendingFree()).isZero();
    }
  }

  /** The plan for a limit is one whose launches fit into it. */
  @ParameterizedTest
  @ValueSource(longs = {1 << 20, 1 << 22, 1 << 26, 1L << 30})
  void aPlanFitsItsMemory(long bytes) {
    Table left = Tables.generated("left", 1_000_000, 250_000, 0, 1);
    for (int tasks : new int[] {1, 8, 1000}) {
      JoinPlan plan = planned(left, left, bytes, tasks, AS_SUITS);
      assertThat(2 * plan.chunkBytes()).isLessThan(bytes);
      assertThat(plan.partitions()).isBetween(1, 1024);
      long table =
          JoinPlan.tableBytes(
              JoinPlan.capacity(left.rows() / plan.partitions()), Groups.stride(left, left));
      assertThat(table + plan.pieceBytes()).as("%s", plan).isLessThan(bytes);
    }
  }

  /** What tasks work on at once fits, so they are fewer where memory is short. */
  @ParameterizedTest
  @CsvSource({
    "200000, 4, 16, 4096",
    "2000000, 4, 16, 4096",
    "2000000, 16, 16, 4096",
    "200000, 2, 16, 4096",
    "200000, 4, 64, 4096",
    "20000000, 2, 64, 4096",
    "20000000, 4, 16, 65536"
  })
  void asManyTasksWorkAtOnceAsHaveRoom(int rows, int share, int asked, long copyBytesMin) {
    Table left = Tables.generated("left", rows, rows / 4, 0, 1);
    long all = 2 * left.bytes();
    long stride = Groups.stride(left, left);
    JoinPlan plan = JoinPlan.of(left, left, all / share, asked, AS_SUITS, copyBytesMin);
    assertThat(plan.tasks()).as("%s", plan).isBetween(1, Math.min(asked - 1, 16));
    assertThat(plan.chunkBytes() >> plan.partitionBits())
        .as("bytes of a copy, %s", plan)
        .satisfiesAnyOf(
            bytes -> assertThat(bytes).isGreaterThanOrEqualTo(copyBytesMin),
            _ -> assertThat(plan.tasks()).isLessThanOrEqualTo(2));
    long scattered = 2 * plan.tasks() * plan.chunkBytes() + plan.partitions() * plan.pieceBytes();
    assertThat(scattered).as("%s", plan).isLessThan(all / share);
    long table =
        JoinPlan.tableBytes(JoinPlan.capacity(left.rows() / plan.partitions()), (int) stride);
    assertThat(plan.tasks() * table).as("%s", plan).isLessThan(all / share);
    for (int tasks : new int[] {1, 16, 64}) {
      assertThat(planned(left, left, 1L << 34, tasks, AS_SUITS).tasks()).isEqualTo(tasks);
    }
  }

  /**
   * In a quarter of their memory three quarters of the tables leave while they are loaded, and
   * again as pieces. What was loaded last does not leave before it is scattered.
   */
  @Test
  void aJoinMovesHardlyMoreThanItMust() {
    Table left = Tables.generated("left", 200_000, 50_000, 0, 1);
    Table right = Tables.generated("right", 200_000, 50_000, 0, 2);
    long tables = left.bytes() + right.bytes();
    JoinPlan plan = planned(left, right, tables / 4, 16, AS_SUITS);
    try (Fairlead fairlead = Fairlead.open(limited(tables / 4))) {
      join(fairlead, left, right, plan.withTasks(1));
      MemoryStats.Moved moved = fairlead.device().memory().moved();
      assertThat(moved.spilled()).isLessThan(tables * 185 / 100);
      assertThat(moved.returned()).isLessThan(tables * 185 / 100);
    }
  }

  @Test
  void aFailureClosesEveryBuffer() {
    Table left = Tables.generated("left", 5_000, 500, 0, 1);
    Table broken =
        new Table() {
          @Override
          public String name() {
            return "broken";
          }

          @Override
          public long rows() {
            return 5_000;
          }

          @Override
          public List<Column> columns() {
            return List.of();
          }

          @Override
          public void read(long first, int count, long[] target) {
            throw new IllegalStateException("row " + first + " is not to be had");
          }
        };
    try (Fairlead fairlead = Fairlead.open(host())) {
      JoinPlan plan = new JoinPlan(2, 1 << 12, 1 << 12, 4);
      assertThatThrownBy(() -> join(fairlead, left, broken, plan))
          .hasMessageContaining("is not to be had");
      MemoryStats memory = fairlead.device().memory();
      assertThat(memory.inUse() - memory.pendingFree()).isZero();
    }
  }
}
