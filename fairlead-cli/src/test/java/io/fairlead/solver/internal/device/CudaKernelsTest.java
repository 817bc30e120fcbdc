package io.fairlead.solver.internal.device;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.spi.Grid;
import io.fairlead.solver.CsrMatrix;
import io.fairlead.solver.internal.Parallel;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.regex.MatchResult;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.assertj.core.data.Offset;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Each CUDA kernel against the Java kernel of the same name, on an {@link EmulatedGpu}: sizes
 * around everything that is counted in blocks, launched as the solver does and in other ways, which
 * must not matter for a single bit.
 */
class CudaKernelsTest {
  private static final int COLUMNS = 700;
  private static final KernelGrids HOST = new HostGrids();
  private static final KernelGrids GPU = new GpuGrids();

  /** The same for every kernel that multiplies: results are the Java kernel's, bit for bit. */
  private static final double EXACT = 0.0;

  /** Sums are in another order. */
  private static final double ROUNDING = 1e-11;

  private final EmulatedGpu gpu = EmulatedGpu.get();
  private final Random random = new Random(11);

  private double[] vector(int n) {
    return random.doubles(n, -1, 1).toArray();
  }

  /** Short rows, empty ones, and a long one in the middle of a block. */
  private CsrMatrix matrix(int rows) {
    int[] ptr = new int[rows + 1];
    for (int i = 0; i < rows; i++) {
      ptr[i + 1] = ptr[i] + (i % 97 == 40 ? 300 : random.nextInt(9));
    }
    int[] col = random.ints(ptr[rows], 0, COLUMNS).toArray();
    return new CsrMatrix(rows, COLUMNS, ptr, col, vector(ptr[rows]));
  }

  private Object[] product(int rows, Object... rest) {
    SlicedRows sliced = SlicedRows.of(matrix(rows), Parallel.SEQUENTIAL);
    List<Object> all =
        new ArrayList<>(
            List.of(sliced.slicePtr(), sliced.colIdx(), sliced.values(), sliced.order(), rows));
    all.addAll(List.of(rest));
    return all.toArray();
  }

  /** Any entries: only the cut of the host device depends on them. */
  private static Grid rows(KernelGrids grids, int rows) {
    return grids.rows(rows, 7 * rows);
  }

  private record Cut(Grid java, Grid cuda) {}

  private static Cut cutRows(int rows) {
    return new Cut(rows(HOST, rows), rows(GPU, rows));
  }

  private static Cut cutChunks(int n) {
    return new Cut(HOST.chunks(n), GPU.chunks(n));
  }

  private static Cut cutItems(int n) {
    return new Cut(HOST.items(n), GPU.items(n));
  }

  private void compare(String kernel, Cut cut, double tolerance, Object... arguments) {
    compareAliased(kernel, cut, tolerance, -1, -1, arguments);
  }

  /** Runs both forms; every buffer must be alike afterwards, those that are only read too. */
  private void compareAliased(
      String kernel, Cut cut, double tolerance, int alias, int of, Object... arguments) {
    GuardedArguments java = arguments(alias, of, arguments);
    JavaKernels.ALL.get(kernel).run(java, 0, cut.java.items());
    GuardedArguments first = null;
    for (EmulatedGpu.Launch launch : launches(cut.cuda)) {
      GuardedArguments cuda = arguments(alias, of, arguments);
      gpu.run(kernel, launch, cuda);
      assertThat(cuda.guardsAreWhole())
          .as("%s writes beside a buffer, %s", kernel, launch)
          .isTrue();
      requireAlike(kernel + ", " + launch, java, cuda, tolerance);
      if (first != null) {
        requireAlike(kernel + " against itself, " + launch, first, cuda, EXACT);
      }
      first = cuda;
    }
  }

  private static GuardedArguments arguments(int alias, int of, Object... arguments) {
    GuardedArguments all = GuardedArguments.of(arguments);
    return alias < 0 ? all : all.alias(alias, of);
  }

  /** As the solver launches it, then in ways that fit nothing, in both orders of threads. */
  private static List<EmulatedGpu.Launch> launches(Grid grid) {
    List<EmulatedGpu.Launch> all = new ArrayList<>();
    int blocks = (int) Math.ceilDiv(grid.items(), (long) grid.block());
    for (boolean descending : new boolean[] {false, true}) {
      if (blocks > 0) {
        all.add(new EmulatedGpu.Launch(blocks, grid.block(), grid.items(), descending));
      }
      all.add(new EmulatedGpu.Launch(blocks + 3, grid.block(), grid.items(), descending));
      all.add(new EmulatedGpu.Launch(1, 96, grid.items(), descending));
      all.add(new EmulatedGpu.Launch(3, 512, grid.items(), descending));
      all.add(new EmulatedGpu.Launch(2, 1, grid.items(), descending));
    }
    return all;
  }

  private static void requireAlike(
      String what, GuardedArguments expected, GuardedArguments found, double tolerance) {
    for (int i = 0; i < expected.count(); i++) {
      if (expected.isBuffer(i) && tolerance == EXACT) {
        assertThat(found.buffer(i).mismatch(expected.buffer(i)))
            .as("%s: where argument %s differs", what, i)
            .isEqualTo(-1);
      } else if (expected.isBuffer(i) && expected.bytes(i) % Double.BYTES == 0) {
        requireNear(what + ", argument " + i, expected.doubles(i), found.doubles(i), tolerance);
      }
    }
  }

  private static void requireNear(
      String what, double[] expected, double[] found, double tolerance) {
    for (int k = 0; k < expected.length; k++) {
      double far = tolerance * Math.max(1.0, Math.abs(expected[k]));
      assertThat(found[k]).as("%s, item %s", what, k).isCloseTo(expected[k], Offset.offset(far));
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 1, 31, 32, 33, 63, 64, 65, 127, 128, 129, 1023, 1024, 1025, 2500})
  void productsAreThoseOfJava(int n) {
    double[] x = vector(COLUMNS);
    Cut cut = cutRows(n);
    compare(SolverKernels.APPLY, cut, EXACT, product(n, x, vector(n)));
    compare(SolverKernels.RESIDUAL, cut, EXACT, product(n, x, vector(n), vector(n)));
    compare(
        SolverKernels.RESTRICT, cut, EXACT, product(n, x, vector(n), vector(n), vector(n), 0.3));
    compare(SolverKernels.PROLONG, cut, EXACT, product(n, x, vector(n)));
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 1, 31, 32, 33, 63, 64, 65, 500, COLUMNS})
  void smoothingMayWriteOverTheOldVector(int n) {
    double[] x = vector(COLUMNS);
    double[] old = vector(n);
    Object[] all = product(n, x, old, vector(n), vector(n), vector(n), 1.25, -0.25, 0.7);
    compare(SolverKernels.SMOOTH, cutRows(n), EXACT, all);
    compareAliased(SolverKernels.SMOOTH, cutRows(n), EXACT, 9, 6, all);
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 1, 63, 64, 65, 511, 512, 513, 1023, 1024, 1025, 2047, 2048, 2049, 5000})
  void sumsOverChunksAreThoseOfJava(int n) {
    int chunks = SolverKernels.chunks(n);
    Cut cut = cutChunks(n);
    double[] p = vector(Math.max(n, COLUMNS));
    double[] r = vector(n);
    double[] q = vector(n);
    double[] partials = vector(3 * chunks);
    compare(SolverKernels.APPLY_DOTS, cut, ROUNDING, product(n, p, r, vector(n), partials));
    compare(SolverKernels.DOTS, cut, ROUNDING, p, r, q, partials, n);
    compare(SolverKernels.DOT, cut, ROUNDING, p, r, partials, 1, n);
    compareAliased(SolverKernels.DOT, cut, ROUNDING, 1, 0, p, p, partials, 2, n);
    compare(
        SolverKernels.UPDATE,
        cut,
        ROUNDING,
        0.5,
        1,
        new double[] {1.0, 3.0},
        p,
        q,
        vector(n),
        2.0,
        vector(n),
        r,
        vector(n),
        partials,
        n);
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 1, 31, 32, 33, 127, 128, 129, 300})
  void denseRowsAreThoseOfJava(int columns) {
    for (int rows : new int[] {0, 1, 5, 33}) {
      Cut cut = new Cut(HOST.dense(rows, columns), GPU.dense(rows, columns));
      Object[] all = {vector(rows * columns), vector(columns), vector(rows), rows, columns};
      compare(SolverKernels.DENSE, cut, ROUNDING, all);
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 1, 31, 32, 33, 127, 128, 129, 1025})
  void vectorsAreThoseOfJava(int n) {
    Cut cut = cutItems(n);
    double[] scalars = {1.0, 4.0};
    compare(SolverKernels.SCALE, cut, EXACT, vector(n), vector(n), vector(n), 0.4);
    compare(SolverKernels.ADD_SCALED, cut, EXACT, -2.0, 1, scalars, vector(n), vector(n));
    Cut gathered = new Cut(HOST.gathered(n), GPU.gathered(n));
    int[] index = random.ints(n, 0, COLUMNS).toArray();
    compare(SolverKernels.PACK, gathered, EXACT, index, vector(COLUMNS), vector(n));
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 511, 512, 513, 2000})
  void theSumTakesTheStepOfJava(int chunks) {
    Cut cut = new Cut(HOST.sum(), GPU.sum());
    double[] partials = random.doubles(3 * chunks, 0, 1).toArray();
    double[] s = random.doubles(Slots.COUNT, 1, 2).toArray();
    compare(SolverKernels.SUM, cut, ROUNDING, partials, s, chunks, 1, Slots.PQ, 0);
    compare(
        SolverKernels.SUM,
        cut,
        ROUNDING,
        partials,
        s,
        chunks,
        3,
        Slots.PQ,
        SolverKernels.STEP_ALPHA);
    compare(
        SolverKernels.SUM,
        cut,
        ROUNDING,
        partials,
        s,
        chunks,
        2,
        Slots.RR,
        SolverKernels.STEP_BETA);
  }

  @Test
  void aPredictedSquareIsNeverNegativeAndStaysNotANumber() {
    double[] s = new double[Slots.COUNT];
    s[Slots.RZ] = 1.0;
    double[] negative = sumAlpha(new double[] {1.0, 2.0, 1.0}, s);
    assertThat(negative[Slots.PREDICTED]).isZero();
    double[] nothing = sumAlpha(new double[] {Double.NaN, 1.0, 1.0}, s);
    assertThat(nothing[Slots.PREDICTED]).isNaN();
  }

  private double[] sumAlpha(double[] partials, double[] s) {
    GuardedArguments a = GuardedArguments.of(partials, s, 1, 3, Slots.PQ, SolverKernels.STEP_ALPHA);
    gpu.run(SolverKernels.SUM, launches(GPU.sum()).getFirst(), a);
    return a.doubles(1);
  }

  @Test
  void aStepThatDoesNotExistIsAFault() {
    GuardedArguments a = GuardedArguments.of(vector(3), vector(Slots.COUNT), 1, 3, Slots.PQ, 77);
    EmulatedGpu.Launch launch = launches(GPU.sum()).getFirst();
    assertThatThrownBy(() -> gpu.run(SolverKernels.SUM, launch, a)).hasMessageContaining("trap");
  }

  // --- what stands in two places ---------------------------------------------------------------

  @Test
  void bothFormsHaveTheSameNumbers() {
    Map<String, Integer> numbers =
        Pattern.compile("constexpr int (\\w+) = (\\d+);")
            .matcher(EmulatedGpu.text())
            .results()
            .collect(Collectors.toMap(m -> m.group(1), CudaKernelsTest::value));
    assertThat(numbers)
        .containsExactlyInAnyOrderEntriesOf(
            Map.ofEntries(
                Map.entry("BLOCK", SlicedRows.BLOCK),
                Map.entry("SLICE", SlicedRows.SLICE),
                Map.entry("CHUNK", SolverKernels.CHUNK),
                Map.entry("DOT_LANES", GpuGrids.DOT_LANES),
                Map.entry("DENSE_LANES", GpuGrids.DENSE_LANES),
                Map.entry("MOST_THREADS", GpuGrids.DOT_LANES),
                Map.entry("MOST_DOTS", 3),
                Map.entry("SLOT_PQ", Slots.PQ),
                Map.entry("SLOT_RQ", Slots.RQ),
                Map.entry("SLOT_QQ", Slots.QQ),
                Map.entry("SLOT_RR", Slots.RR),
                Map.entry("SLOT_NEXT_RZ", Slots.NEXT_RZ),
                Map.entry("SLOT_RZ", Slots.RZ),
                Map.entry("SLOT_ALPHA", Slots.ALPHA),
                Map.entry("SLOT_BETA", Slots.BETA),
                Map.entry("SLOT_PREDICTED", Slots.PREDICTED),
                Map.entry("STEP_NONE", SolverKernels.STEP_NONE),
                Map.entry("STEP_ALPHA", SolverKernels.STEP_ALPHA),
                Map.entry("STEP_BETA", SolverKernels.STEP_BETA)));
  }

  private static int value(MatchResult match) {
    return Integer.parseInt(match.group(2));
  }

  @Test
  void bothFormsHaveTheSameKernels() {
    List<String> inCuda =
        Pattern.compile("^KERNEL (\\w+)\\(", Pattern.MULTILINE)
            .matcher(EmulatedGpu.text())
            .results()
            .map(match -> match.group(1))
            .toList();
    assertThat(inCuda).containsExactlyInAnyOrderElementsOf(JavaKernels.ALL.keySet());
    assertThat(JavaKernels.ALL.keySet()).allSatisfy(name -> gpu.signature(name));
  }

  /** NVRTC has no headers. */
  @Test
  void theSourceNeedsNothingElse() {
    assertThat(EmulatedGpu.text()).doesNotContain("#include");
    assertThat(Arrays.stream(EmulatedGpu.text().split("\n", -1)))
        .allSatisfy(line -> assertThat(line.length()).isLessThanOrEqualTo(100));
  }

  /**
   * As in a matrix of some 300 million entries, of which the last block is there: its columns and
   * values lie more than 2^31 bytes behind the beginnings of their buffers.
   */
  @Test
  void entriesBehindTwoGibibytesAreFound(@TempDir Path folder) throws IOException {
    int rows = SlicedRows.BLOCK;
    int before = 300_000_000;
    SlicedRows sliced = SlicedRows.of(matrix(rows), Parallel.SEQUENTIAL);
    double[] x = vector(COLUMNS);
    double[] expected = new double[rows];
    GuardedArguments near =
        GuardedArguments.of(
            sliced.slicePtr(), sliced.colIdx(), sliced.values(), sliced.order(), rows, x, expected);
    JavaKernels.ALL.get("apply").run(near, 0, 1);
    int[] slicePtr = Arrays.stream(sliced.slicePtr()).map(at -> at + before).toArray();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment col =
          behind(4L * before, MemorySegment.ofArray(sliced.colIdx()), folder.resolve("col"), arena);
      MemorySegment val =
          behind(8L * before, MemorySegment.ofArray(sliced.values()), folder.resolve("val"), arena);
      GuardedArguments java =
          GuardedArguments.of(slicePtr, col, val, sliced.order(), rows, x, expected);
      GuardedArguments cuda =
          GuardedArguments.of(slicePtr, col, val, sliced.order(), rows, x, expected);
      JavaKernels.ALL.get("apply").run(java, 0, 1);
      gpu.run("apply", new EmulatedGpu.Launch(1, rows, rows, false), cuda);
      assertThat(java.doubles(6)).containsExactly(near.doubles(6));
      assertThat(cuda.doubles(6)).containsExactly(near.doubles(6));
    }
  }

  /** A file with a hole takes no memory for what nobody touches. */
  private static MemorySegment behind(long bytes, MemorySegment content, Path file, Arena arena)
      throws IOException {
    try (FileChannel channel =
        FileChannel.open(
            file,
            StandardOpenOption.CREATE_NEW,
            StandardOpenOption.SPARSE,
            StandardOpenOption.READ,
            StandardOpenOption.WRITE)) {
      long size = bytes + content.byteSize();
      MemorySegment whole = channel.map(FileChannel.MapMode.READ_WRITE, 0, size, arena);
      whole.asSlice(bytes).copyFrom(content);
      return whole;
    }
  }
}
