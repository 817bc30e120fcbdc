package io.fairlead.cli.join;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.device.spi.Grid;
import io.fairlead.solver.internal.device.EmulatedGpu;
import io.fairlead.solver.internal.device.EmulatedGpu.Launch;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.TreeSet;
import java.util.stream.IntStream;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * Each kernel in CUDA C++, run on the processor, against the same in Java: sizes around what is
 * counted in tiles, launched as the join does and in other ways, which must not matter. Where rows
 * and entries lie is not said, so what lies together is compared as a set.
 */
@Timeout(120)
class JoinKernelsTest {
  private static final int PIECE = 777;

  private static EmulatedGpu gpu;

  @BeforeAll
  static void compile() {
    gpu =
        EmulatedGpu.of(
            "join.cu", CudaJoinKernels.source(), new TreeSet<>(JavaJoinKernels.ALL.keySet()));
  }

  private static long[] rows(int count, int words, int keys, long seed) {
    Random random = new Random(seed);
    long[] rows = new long[count * words];
    Arrays.setAll(rows, at -> at % words == 0 ? random.nextInt(keys) : random.nextLong() >> 20);
    if (count > 3) {
      rows[2 * words] = Long.MIN_VALUE;
      rows[3 * words] = Long.MAX_VALUE;
    }
    return rows;
  }

  /** As a worker of the host device does, in pieces. */
  private static void java(String kernel, WordArguments arguments, long items) {
    for (long first = 0; first < items; first += PIECE) {
      JavaJoinKernels.ALL.get(kernel).run(arguments, first, Math.min(items, first + PIECE));
    }
  }

  private static void cuda(String kernel, WordArguments arguments, Launch launch) {
    gpu.run(kernel, launch, arguments);
    assertThat(arguments.guardsAreWhole()).as("%s beside a buffer, %s", kernel, launch).isTrue();
  }

  /** As the join launches it, then in ways that fit nothing, in both orders of threads. */
  private static List<Launch> launches(Grid grid) {
    List<Launch> all = new ArrayList<>();
    for (boolean descending : new boolean[] {false, true}) {
      if (grid.items() > 0) {
        all.add(new Launch((int) grid.blocks(), grid.block(), grid.items(), descending));
      }
      all.add(new Launch(1, 96, grid.items(), descending));
      all.add(new Launch(3, 512, grid.items(), descending));
      all.add(new Launch(2, 1, grid.items(), descending));
    }
    return all;
  }

  static List<int[]> cuts() {
    List<int[]> cuts = new ArrayList<>();
    for (int count : new int[] {0, 1, 63, 256, 2047, 2048, 2049, 5000}) {
      for (int bits : new int[] {0, 1, 5, 10}) {
        cuts.add(new int[] {count, bits});
      }
    }
    return cuts;
  }

  @ParameterizedTest
  @MethodSource("cuts")
  void rowsAreCountedAndScattered(int[] cut) {
    int count = cut[0];
    int bits = cut[1];
    int words = 1 + count % 3;
    long[] rows = rows(count, words, 300, count);
    WordArguments counted = WordArguments.of(rows, count, words, bits, new long[1 << bits]);
    java(JoinKernels.COUNT, counted, count);
    long[] counts = counted.words(4);
    assertThat(Arrays.stream(counts).sum()).isEqualTo(count);
    long[] starts = new long[counts.length];
    for (int p = 1; p < counts.length; p++) {
      starts[p] = starts[p - 1] + counts[p - 1];
    }
    WordArguments sorted =
        WordArguments.of(rows, count, words, bits, starts, new long[rows.length]);
    java(JoinKernels.SCATTER, sorted, count);
    List<List<String>> expected = partitions(sorted.words(5), words, starts);
    requireAllInTheirPartitions(sorted.words(5), words, bits, starts);
    for (Launch launch : launches(JoinKernels.gpuTiles(count))) {
      WordArguments counts2 = WordArguments.of(rows, count, words, bits, new long[1 << bits]);
      cuda(JoinKernels.COUNT, counts2, launch);
      assertThat(counts2.words(4)).as("%s", launch).isEqualTo(counts);
      WordArguments found =
          WordArguments.of(rows, count, words, bits, starts, new long[rows.length]);
      cuda(JoinKernels.SCATTER, found, launch);
      assertThat(partitions(found.words(5), words, starts)).as("%s", launch).isEqualTo(expected);
      assertThat(found.words(4)).isEqualTo(sorted.words(4));
    }
  }

  private static List<List<String>> partitions(long[] sorted, int words, long[] starts) {
    return IntStream.range(0, starts.length)
        .mapToObj(
            p ->
                entries(
                    Arrays.copyOfRange(
                        sorted,
                        (int) starts[p] * words,
                        p + 1 < starts.length ? (int) starts[p + 1] * words : sorted.length),
                    words))
        .toList();
  }

  private static void requireAllInTheirPartitions(
      long[] sorted, int words, int bits, long[] starts) {
    for (int row = 0; row < sorted.length / words; row++) {
      int p = KeyHash.partition(KeyHash.of(sorted[row * words]), bits);
      assertThat((long) row).isGreaterThanOrEqualTo(starts[p]);
      assertThat((long) row).isLessThan(p + 1 < starts.length ? starts[p + 1] : Long.MAX_VALUE);
    }
  }

  /** Words in groups of {@code words}, in an order that does not depend on where they lie. */
  private static List<String> entries(long[] all, int words) {
    List<String> entries = new ArrayList<>();
    for (int at = 0; at < all.length; at += words) {
      entries.add(Arrays.toString(Arrays.copyOfRange(all, at, at + words)));
    }
    entries.sort(null);
    return entries;
  }

  @ParameterizedTest
  @CsvSource({
    "0,0,1,1",
    "1,1,2,2",
    "200,300,2,1",
    "3000,2000,2,2",
    "3000,2000,1,4",
    "999,5000,3,2"
  })
  void tablesAreBuiltProbedAndCollected(
      int leftCount, int rightCount, int leftWords, int rightWords) {
    int bits = 3;
    long[] left = rows(leftCount, leftWords, 400, 1);
    long[] right = rows(rightCount, rightWords, 500, 2);
    int stride = Groups.SUMS + leftWords - 1 + rightWords - 1;
    long capacity = JoinPlan.capacity(leftCount);
    Tables3 expected = new Tables3(left, right, leftWords, rightWords, bits, capacity, stride);
    expected.javaAll();
    for (Launch launch : launches(Grid.of(Math.max(leftCount, capacity + 1)))) {
      Tables3 found = new Tables3(left, right, leftWords, rightWords, bits, capacity, stride);
      found.cudaAll(launch);
      assertThat(entries(found.table, stride)).as("%s", launch).isEqualTo(expected.sorted());
      assertThat(found.counters).isEqualTo(expected.counters);
      assertThat(entries(found.groups, stride)).isEqualTo(entries(expected.groups, stride));
    }
    List<String> plain =
        Tables.pairs(
            Groups.merged(List.of(expected.collected()), stride),
            Tables.of(leftWords, left),
            Tables.of(rightWords, right));
    assertThat(plain)
        .isEqualTo(Tables.pairs(Tables.of(leftWords, left), Tables.of(rightWords, right)));
  }

  /** One table through all of its kernels, the result of each handed on to the next. */
  private static final class Tables3 {
    private final long[] left;
    private final long[] right;
    private final int leftWords;
    private final int rightWords;
    private final int bits;
    private final long capacity;
    private final int stride;
    long[] table;
    long[] counters = new long[JoinKernels.COUNTERS];
    long[] groups = {};

    Tables3(
        long[] left,
        long[] right,
        int leftWords,
        int rightWords,
        int bits,
        long capacity,
        int stride) {
      this.left = left;
      this.right = right;
      this.leftWords = leftWords;
      this.rightWords = rightWords;
      this.bits = bits;
      this.capacity = capacity;
      this.stride = stride;
      this.table = new long[(int) (capacity + 1) * stride];
      Arrays.fill(table, 77);
    }

    private interface Runner {
      void run(String kernel, WordArguments arguments, long items);
    }

    void javaAll() {
      all(JoinKernelsTest::java);
    }

    void cudaAll(Launch launch) {
      all((kernel, arguments, items) -> cuda(kernel, arguments, launch));
    }

    private void all(Runner runner) {
      WordArguments clear = WordArguments.of(table, capacity, stride);
      runner.run(JoinKernels.CLEAR, clear, capacity + 1);
      int leftCount = left.length / leftWords;
      WordArguments build =
          WordArguments.of(
              left,
              leftCount,
              leftWords,
              bits,
              clear.words(0),
              capacity,
              stride,
              capacity,
              counters);
      runner.run(JoinKernels.BUILD, build, leftCount);
      int rightCount = right.length / rightWords;
      WordArguments probe =
          WordArguments.of(right, rightCount, rightWords, bits, build.words(4), capacity, stride);
      runner.run(JoinKernels.PROBE, probe, rightCount);
      table = probe.words(4);
      long taken = build.words(8)[JoinKernels.TAKEN];
      WordArguments collect =
          WordArguments.of(table, capacity, stride, build.words(8), new long[(int) taken * stride]);
      runner.run(JoinKernels.COLLECT, collect, capacity + 1);
      counters = collect.words(3);
      groups = collect.words(4);
    }

    List<String> sorted() {
      return entries(table, stride);
    }

    long[] collected() {
      return Arrays.copyOf(groups, (int) counters[JoinKernels.COLLECTED] * stride);
    }
  }

  /** A table without room says so, in both forms, and writes nothing beside it. */
  @Test
  void aTableThatIsTooSmallSaysSo() {
    long[] rows = rows(500, 1, 1_000_000, 3);
    for (long probesMax : new long[] {16, 3}) {
      long[] table = new long[17 * Groups.SUMS];
      WordArguments clear = WordArguments.of(table, 16L, Groups.SUMS);
      java(JoinKernels.CLEAR, clear, 17);
      WordArguments java =
          WordArguments.of(
              rows, 500, 1, 0, clear.words(0), 16L, Groups.SUMS, probesMax, new long[3]);
      java(JoinKernels.BUILD, java, 500);
      assertThat(java.words(8)[JoinKernels.OVERFLOWED]).isEqualTo(1);
      assertThat(java.guardsAreWhole()).isTrue();
      WordArguments cuda =
          WordArguments.of(
              rows, 500, 1, 0, clear.words(0), 16L, Groups.SUMS, probesMax, new long[3]);
      cuda(JoinKernels.BUILD, cuda, new Launch(4, 128, 500, false));
      assertThat(cuda.words(8)[JoinKernels.OVERFLOWED]).isEqualTo(1);
    }
  }

  @Test
  void theyTakeWhatIsDeclared() {
    assertThat(gpu.signature(JoinKernels.COUNT)).isEqualTo("in(I64), I32, I32, I32, out(I64)");
    assertThat(gpu.signature(JoinKernels.SCATTER))
        .isEqualTo("in(I64), I32, I32, I32, out(I64), out(I64)");
    assertThat(gpu.signature(JoinKernels.CLEAR)).isEqualTo("out(I64), I64, I32");
    assertThat(gpu.signature(JoinKernels.BUILD))
        .isEqualTo("in(I64), I32, I32, I32, out(I64), I64, I32, I64, out(I64)");
    assertThat(gpu.signature(JoinKernels.PROBE))
        .isEqualTo("in(I64), I32, I32, I32, out(I64), I64, I32");
    assertThat(gpu.signature(JoinKernels.COLLECT))
        .isEqualTo("in(I64), I64, I32, out(I64), out(I64)");
  }
}
