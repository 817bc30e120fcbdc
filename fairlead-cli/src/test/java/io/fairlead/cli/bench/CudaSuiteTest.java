package io.fairlead.cli.bench;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.assertj.core.api.Assertions.within;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fairlead.cli.Progress;
import io.fairlead.device.spi.ModuleImage;
import io.fairlead.runtime.DriverReport;
import io.fairlead.runtime.DriverUnavailableException;
import io.fairlead.runtime.Fairlead;
import io.fairlead.runtime.FairleadConfig;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.concurrent.CancellationException;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** What the suite for GPUs does without one: its probes and its baseline, on the stand-in. */
@Timeout(120)
@EnabledOnOs(OS.LINUX)
class CudaSuiteTest {
  private static final Path ROOT =
      Path.of(System.getProperty("fairlead.root", "..")).toAbsolutePath();

  private static final String KERNELS =
      """
      //standin 1
      kernel nop
      kernel spin nanos:i64
      kernel hold flag:ptr
      kernel nullstore
      """;

  private static final int SCALE = 100;

  @TempDir static Path folder;

  private static Path standIn = Path.of("libstandin.so");

  @BeforeAll
  static void buildStandIn() throws IOException, InterruptedException {
    standIn = StandIn.build(folder);
  }

  private static void onStandIn(Consumer<CudaProbes> body) {
    opened(fairlead -> body.accept(new CudaProbes(fairlead, new ModuleImage.Ptx(KERNELS), SCALE)));
  }

  private static void opened(Consumer<Fairlead> body) {
    StandIn.with(
        standIn,
        () -> {
          try (Fairlead fairlead = Fairlead.open(FairleadConfig.defaults().withDevice("cuda"))) {
            body.accept(fairlead);
          }
          return null;
        });
  }

  private static <T> T withLibrary(Callable<T> body) {
    return StandIn.with(standIn, body);
  }

  private static void requireSamples(double[] samples, int count, double least) {
    assertThat(samples).hasSize(count);
    assertThat(Samples.of(samples).min()).isPositive().isGreaterThanOrEqualTo(least);
  }

  @Test
  void launchesAndWaitsAreMeasured() {
    onStandIn(
        probes -> {
          requireSamples(probes.waits(0, 4_000), 40, 0);
          requireSamples(probes.waits(20_000, 3_000), 30, 20_000);
          requireSamples(probes.launches(), 5, 0);
        });
  }

  @Test
  void whatIsCheapIsMeasured() {
    onStandIn(
        probes -> {
          assertThat(probes.finishedWaits()[0]).hasSize(5);
          assertThat(probes.guards()).hasDimensions(3, 5);
          assertThat(probes.guardsInTask()).hasDimensions(3, 5);
          requireSamples(probes.interrupts(), 5, 0);
        });
  }

  @Test
  void waitsBesideBusyCarriersAreMeasured() {
    onStandIn(
        probes ->
            requireSamples(
                probes.waitsBeside(() -> WakeProbes.compute(1_000), 20_000), 200, 20_000));
  }

  @Test
  void allocationsAndCopiesAreMeasured() {
    opened(
        fairlead -> {
          CudaMemoryProbes probes = new CudaMemoryProbes(fairlead, SCALE);
          requireSamples(probes.allocations(), 5, 0);
          double[][] copies = probes.copies();
          requireSamples(copies[0], 5, 0);
          requireSamples(copies[1], 5, 0);
        });
  }

  @Test
  void eachOfManyWaitersIsWoken() {
    onStandIn(
        probes -> {
          double[][] wakes = probes.manyWaiters(103, 8);
          requireSamples(wakes[0], 103, 0);
          assertThat(wakes[1]).containsExactly(0);
          requireSamples(wakes[2], 8, 0);
          requireSamples(wakes[3], 8, 0);
          assertThat(Samples.of(wakes[3]).max()).isEqualTo(Samples.of(wakes[0]).max());
          assertThat(Samples.of(wakes[2]).min()).isEqualTo(Samples.of(wakes[0]).min());
        });
  }

  /** As on a GPU, which has fewer queues than there are streams. */
  @Test
  void eachOfManyWaitersIsWokenWhereStreamsShareQueues() {
    StandIn.setQueues(standIn, 4);
    try {
      onStandIn(probes -> assertThat(probes.manyWaiters(103, 32)[1]).containsExactly(0));
    } finally {
      StandIn.setQueues(standIn, 0);
    }
  }

  @Test
  void longWaitsAreMeasured() {
    opened(
        fairlead -> {
          try (WaitProbes probes = new WaitProbes(fairlead, new ModuleImage.Ptx(KERNELS), SCALE)) {
            double[][] beside = probes.besideLong(1);
            assertThat(Samples.of(beside[0]).min()).isGreaterThanOrEqualTo(20_000);
            assertThat(Samples.of(beside[1]).min()).isGreaterThanOrEqualTo(20_000);
            double[][] core = probes.coreOfLongWaits(2);
            // the clock of a process ticks every 10 ms, which is about as long as these waits
            assertThat(core[0]).hasSize(2);
            assertThat(Samples.of(core[0]).min()).isNotNegative();
            assertThat(core[1]).hasSize(2);
          }
        });
  }

  @Test
  void aFaultFailsAllWithOneCause() {
    onStandIn(
        probes -> {
          double[][] failed = probes.fault(50);
          requireSamples(failed[0], 50, 0);
          assertThat(failed[1]).as("causes").containsExactly(1);
          assertThat(failed[2]).as("waiters that passed").containsExactly(0);
          assertThat(failed[3]).as("the launch is named").containsExactly(1);
          assertThat(failed[4]).hasSize(1);
        });
  }

  @Test
  void theBaselineIsBuiltAndRuns() throws IOException, InterruptedException {
    Path image = Files.writeString(folder.resolve("kernels"), KERNELS);
    CudaPeer peer =
        new CudaPeer(ROOT.resolve("fairlead-lab/peers/cuda/baseline.sh"), standIn.toString());
    List<String> lines = peer.samples(image, SCALE, 1);
    assertThat(lines.stream().map(line -> line.split(" ", -1)[1]))
        .containsExactly(
            "wait.0",
            "wait.20",
            "wait.200",
            "launch",
            "guard.get",
            "guard.set",
            "guard.push",
            "alloc",
            "copy.up",
            "copy.down");
    double[] waits =
        Arrays.stream(lines.get(1).split(" ", -1)).skip(2).mapToDouble(Double::valueOf).toArray();
    requireSamples(waits, 30, 20_000);
    assertThat(peer.samples(image, SCALE, 1, "waits").stream().map(line -> line.split(" ", -1)[1]))
        .containsExactly("wait.0", "wait.20", "wait.200");
  }

  @Test
  void bothSidesAreBoundToTheSameCores() throws Exception {
    assumeTrue(!ChildProcess.bound(1).isEmpty(), "needs taskset");
    Path script = folder.resolve("says-its-cores");
    Files.writeString(script, "echo samples cores $(grep Cpus_allowed_list: /proc/self/status)\n");
    for (ChildProcess.Place place :
        List.of(ChildProcess.Place.withRoom(1), ChildProcess.Place.tight(1))) {
      String theirs = new CudaPeer(script, "").samples(script, SCALE, place.cores()).getFirst();
      String mask = theirs.substring(theirs.lastIndexOf(' ') + 1);
      assertThat(ChildProcess.bound(place.cores()).getLast().split(",", -1))
          .hasSize(ChildProcess.cores(place.cores()));
      assertThat(ChildProcess.onCores(place, List.of(), List.of("doctor"), null).output())
          .as("one carrier, on the very same cores")
          .contains("processors  1 (may use " + mask + ")");
    }
  }

  @Test
  void aBaselineThatFailsSaysWhy() throws IOException {
    Path image = Files.writeString(folder.resolve("kernels"), KERNELS);
    Path script = ROOT.resolve("fairlead-lab/peers/cuda/baseline.sh");
    assertThatThrownBy(() -> new CudaPeer(script, "libno-such.so").samples(image, SCALE, 1))
        .isInstanceOfSatisfying(
            CudaPeer.MissingException.class, none -> assertThat(none.absent()).isFalse())
        .hasMessageContaining("libno-such.so");
    assertThatThrownBy(() -> new CudaPeer(folder.resolve("none"), "").samples(image, SCALE, 1))
        .isInstanceOf(CudaPeer.MissingException.class)
        .hasMessageContaining("not there");
  }

  /** As much of CuPy as its measuring uses; it does nothing. */
  private static final String CUPY =
      """
      class RawModule:
          def __init__(self, path):
              self.text = open(path).read()
          def get_function(self, name):
              assert "kernel " + name in self.text
              return lambda grid, block, arguments: None

      class cuda:
          class Stream:
              def __init__(self, non_blocking):
                  assert non_blocking
              def use(self):
                  pass
              def synchronize(self):
                  pass
          @staticmethod
          def alloc(size):
              return bytearray(size)
      """;

  private static final String NUMPY = "uint64 = int\n";

  /** As much of PyTorch; whether it compiles kernels is to be filled in. */
  private static final String TORCH =
      """
      uint8 = "uint8"
      def empty(size, dtype, device):
          assert dtype == uint8 and device == "cuda"
      class cuda:
          class Stream:
              def synchronize(self):
                  pass
          class Event:
              def __init__(self, enable_timing):
                  assert enable_timing
              def record(self):
                  pass
              def synchronize(self):
                  pass
              def elapsed_time(self, other):
                  return 25.0
          is_available = staticmethod(lambda: True)
          set_stream = staticmethod(lambda stream: None)
          _sleep = staticmethod(lambda cycles: None)
          #compiles _compile_kernel = staticmethod(lambda source, name: lambda grid, block, args: None)
      """;

  @ParameterizedTest
  @CsvSource({"cupy, cupy", "torch, torch", "torch, torch-that-compiles"})
  void aLibraryInPythonIsMeasured(String name, String kind)
      throws IOException, InterruptedException {
    assumeTrue(Files.isExecutable(Path.of("/usr/bin/python3")), "needs python3");
    Path modules = Files.createDirectory(folder.resolve(kind));
    Files.writeString(modules.resolve("cupy.py"), CUPY);
    Files.writeString(modules.resolve("numpy.py"), NUMPY);
    Files.writeString(
        modules.resolve("torch.py"),
        kind.equals("torch-that-compiles") ? TORCH.replace("#compiles ", "") : TORCH);
    Path image = Files.writeString(modules.resolve("kernels"), KERNELS);
    Path script = ROOT.resolve("fairlead-lab/peers/cuda/peers.py");
    Path said = modules.resolve("out");
    ProcessBuilder builder =
        new ProcessBuilder("/usr/bin/python3", "-B", script + "", name, image + "", "" + SCALE)
            .redirectErrorStream(true)
            .redirectOutput(said.toFile());
    builder.environment().put("PYTHONPATH", modules.toString());
    assertThat(builder.start().waitFor(60, TimeUnit.SECONDS)).isTrue();
    List<String> all = Files.readAllLines(said);
    List<String> lines = all.stream().filter(line -> line.startsWith("samples ")).toList();
    assertThat(lines.stream().map(line -> line.split(" ", -1)[1]))
        .as(String.join("\n", all))
        .containsExactly("wait.0", "wait.20", "alloc");
    assertThat(lines.stream().map(line -> line.split(" ", -1).length - 2))
        .containsExactly(40, 30, 5);
  }

  @Test
  void aLibraryThatIsNotThereSaysSo() throws IOException {
    Path image = Files.writeString(folder.resolve("kernels"), KERNELS);
    Path empty = Files.createDirectories(folder.resolve("copy/of/the/folder"));
    for (String file : List.of("peers.sh", "peers.py")) {
      Files.copy(ROOT.resolve("fairlead-lab/peers/cuda").resolve(file), empty.resolve(file));
    }
    for (String name : List.of("lwjgl", "jcuda", "another")) {
      assertThatThrownBy(() -> CudaPeer.of(name, empty, "").samples(image, SCALE, 1))
          .isInstanceOfSatisfying(
              CudaPeer.MissingException.class, none -> assertThat(none.absent()).isTrue())
          .hasMessageContaining(name);
    }
  }

  @Test
  void whatIsOverTheBaselineIsTheMedianOfTheRounds() {
    List<Samples> ours = List.of(Samples.of(11_000, 12_000), Samples.of(15_000), Samples.of(9_000));
    List<Samples> theirs = List.of(Samples.of(10_000), Samples.of(11_000), Samples.of(8_500));
    Row row = CudaWaits.over("r", ours, theirs, false, 2.0, 0.5);
    assertThat(row.value()).isEqualTo(1.5, within(1e-9));
    assertThat(row.baseline()).isEqualTo(10, within(1e-9));
    assertThat(row.n()).isEqualTo(4);
    assertThat(row.verdict()).isEqualTo("kept");
    assertThat(CudaWaits.over("r", ours, theirs, true, 2.0, 0.5).value())
        .isEqualTo(2, within(1e-9));
  }

  @Test
  void onlyTheRowsThatAreNamedAreMeasured() throws IOException {
    Path image = Files.writeString(folder.resolve("some"), KERNELS);
    CudaPeer none = new CudaPeer(folder.resolve("none"), standIn.toString());
    Suite.Options options =
        new Suite.Options(true, 64, List.of("cuda.launch", "cuda.wait.done", "cuda.fault"));
    StringWriter said = new StringWriter();
    List<Row> rows =
        withLibrary(
            () ->
                new CudaSuite(none, image)
                    .run(options, Progress.to(new PrintWriter(said, true), false)));
    assertThat(rows.stream().map(Row::id))
        .containsExactly(
            "cuda.wait.done",
            "cuda.wait.done.bytes",
            "cuda.launch",
            "cuda.fault.last",
            "cuda.fault.told",
            "cuda.fault.causes",
            "cuda.fault.site_unnamed",
            "cuda.failed_groups");
    // without C there is nothing to compare with
    assertThat(rows.stream().map(Row::missing).filter(Objects::nonNull))
        .containsExactly("no baseline");
    assertThat(rows.get(2).missing()).isEqualTo("no baseline");
    assertThat(rows.getLast().value()).isEqualTo(1);
    assertThat(said.toString()).contains("not there").doesNotContain("waiters", "copies");
  }

  @Test
  void waitsAreMeasuredBesideC() throws IOException {
    Path image = Files.writeString(folder.resolve("waits"), KERNELS);
    CudaPeer c =
        new CudaPeer(ROOT.resolve("fairlead-lab/peers/cuda/baseline.sh"), standIn.toString());
    Suite.Options options =
        new Suite.Options(
            true,
            64,
            List.of(
                "cuda.wait.p99.jdk",
                "cuda.wait.parked.own.1carrier.20us",
                "cuda.wait.parked.tight.1carrier_1core.20us",
                "cuda.wait.events.0us"));
    List<Row> rows =
        withLibrary(
            () ->
                new CudaSuite(c, image)
                    .run(options, Progress.to(new PrintWriter(new StringWriter()), false)));
    assertThat(rows.stream().map(Row::id))
        .containsExactly(
            "cuda.wait.parked.own.1carrier.20us",
            "cuda.wait.parked.tight.1carrier_1core.20us",
            "cuda.wait.p99.jdk.0us",
            "cuda.wait.p99.jdk.20us",
            "cuda.wait.p99.jdk.200us",
            "cuda.wait.events.0us",
            "cuda.failed_groups");
    assertThat(rows).allSatisfy(row -> assertThat(row.missing()).isNull());
    assertThat(rows.getFirst().baseline()).isGreaterThanOrEqualTo(20);
    assertThat(rows.getFirst().must()).isEqualTo(2);
    assertThat(rows.get(1).must()).as("nothing is promised there").isNull();
    assertThat(rows.get(2).must()).isNull();
  }

  /** A run that is cut has given what it had. */
  @Test
  void rowsAreHandedOverPartByPart() throws IOException {
    Path image = Files.writeString(folder.resolve("parts"), KERNELS);
    CudaPeer none = new CudaPeer(folder.resolve("none"), standIn.toString());
    Progress progress = Progress.to(new PrintWriter(new StringWriter()), false);
    Suite.Options options =
        new Suite.Options(true, 64, List.of("cuda.wait.done", "cuda.fault.causes"));
    List<String> seen = new ArrayList<>();
    assertThatThrownBy(
            () ->
                withLibrary(
                    () -> {
                      new CudaSuite(none, image)
                          .run(
                              options,
                              progress,
                              rows -> {
                                rows.forEach(row -> seen.add(row.id()));
                                throw new CancellationException("cut");
                              });
                      return null;
                    }))
        .hasStackTraceContaining("cut");
    assertThat(seen).containsExactly("cuda.wait.done", "cuda.wait.done.bytes");
  }

  @Test
  void whatTheGuardsCallsTakeInCStandsBesideIt() throws IOException {
    Path image = Files.writeString(folder.resolve("guards"), KERNELS);
    CudaPeer c =
        new CudaPeer(ROOT.resolve("fairlead-lab/peers/cuda/baseline.sh"), standIn.toString());
    Progress progress = Progress.to(new PrintWriter(new StringWriter()), false);
    Suite.Options options = new Suite.Options(true, 64, List.of("cuda.guard"));
    List<Row> rows = withLibrary(() -> new CudaSuite(c, image).run(options, progress));
    assertThat(rows.stream().map(Row::id))
        .containsExactly(
            "cuda.guard.current",
            "cuda.guard.free",
            "cuda.guard.c.push_pop",
            "cuda.guard.c.get_set_set",
            "cuda.guard.c.get",
            "cuda.failed_groups");
    assertThat(rows).allSatisfy(row -> assertThat(row.missing()).isNull());
    assertThat(rows.subList(2, 5)).allSatisfy(row -> assertThat(row.value()).isPositive());
    assertThat(rows.getFirst().baseline()).isEqualTo(rows.get(2).value());
  }

  @Test
  void faultsInManyProcessesAreCounted() throws IOException {
    Path image = Files.writeString(folder.resolve("crowd"), KERNELS);
    CudaPeer none = new CudaPeer(folder.resolve("none"), standIn.toString());
    StringWriter said = new StringWriter();
    Progress progress = Progress.to(new PrintWriter(said, true), false);
    Suite.Options options = new Suite.Options(true, 64, List.of("cuda.faults"));
    List<Row> rows = withLibrary(() -> new CudaSuite(none, image).run(options, progress));
    assertThat(rows.stream().map(Row::id))
        .containsExactly("cuda.faults.hung", "cuda.faults.wrong", "cuda.failed_groups");
    assertThat(rows.stream().map(Row::value)).containsOnly(0.0);
    assertThat(rows.getFirst().n()).isEqualTo(2);
    assertThat(said.toString())
        .contains("2 of 2 processes after ")
        .contains(": 0 did not end, 0 failed")
        .containsPattern("one of them: .* s start .* s open .* s fault .* s close");
  }

  /** What was found by then stands. */
  @Test
  void aCrowdThatTakesTooLongBeginsNoMore() throws Exception {
    Path image = Files.writeString(folder.resolve("limited"), KERNELS);
    StringWriter said = new StringWriter();
    CudaRuns runs =
        new CudaRuns(
            new CudaPeer(folder.resolve("none"), ""),
            image,
            Progress.to(new PrintWriter(said, true), false));
    CudaRuns.Crowd crowd =
        withLibrary(
            () -> runs.measureCrowd("crowd", CudaWorker.Group.FAULT, 64, 100, 1, Duration.ZERO));
    assertThat(crowd).isEqualTo(new CudaRuns.Crowd(1, 0, 0));
    assertThat(said.toString()).contains("1 of 100 processes after ");
    assertThat(runs.of("crowd fault.causes")).hasSize(1);
  }

  /** A kernel that is not there: each process says so, and none counts as right. */
  @Test
  void processesThatFailAreCountedToo() throws IOException {
    Path image = Files.writeString(folder.resolve("bad"), KERNELS.replace("kernel nullstore", ""));
    CudaPeer none = new CudaPeer(folder.resolve("none"), standIn.toString());
    StringWriter said = new StringWriter();
    Progress progress = Progress.to(new PrintWriter(said, true), false);
    Suite.Options options = new Suite.Options(true, 64, List.of("cuda.faults"));
    List<Row> rows = withLibrary(() -> new CudaSuite(none, image).run(options, progress));
    assertThat(rows.stream().map(Row::value)).containsExactly(0.0, 2.0, 2.0);
    assertThat(said.toString()).contains("nullstore");
  }

  @Test
  void aProcessThatDoesNotEndIsEndedAndSaysWhereItIs() {
    StringWriter said = new StringWriter();
    CudaRuns runs =
        new CudaRuns(
            new CudaPeer(folder.resolve("none"), ""),
            null,
            Progress.to(new PrintWriter(said, true), false));
    runs.begin("costs");
    withLibrary(
        () -> {
          List<String> args = List.of("bench", "cuda-worker", "COSTS", "--limit", "0");
          runs.measure("costs", args, List.of(), ChildProcess.Place.all(), Duration.ofSeconds(60));
          return null;
        });
    assertThat(runs.failed()).isEqualTo(1);
    assertThat(runs.why()).isEqualTo("did not end");
    assertThat(runs.of("costs launch")).isEmpty();
    assertThat(said.toString()).contains("COSTS has not ended", "\"main\"", "CudaWorker.call");
    runs.begin("more");
    assertThat(runs.why()).isEqualTo("not measured");
  }

  @Test
  void aProcessThatCannotEndItselfIsEnded() {
    StringWriter said = new StringWriter();
    CudaRuns runs =
        new CudaRuns(
            new CudaPeer(folder.resolve("none"), ""),
            null,
            Progress.to(new PrintWriter(said, true), false));
    runs.begin("costs");
    withLibrary(
        () -> {
          List<String> args = List.of("bench", "cuda-worker", "COSTS", "--limit", "1000");
          runs.measure(
              "costs",
              args,
              List.of(),
              ChildProcess.Place.all(),
              CudaRuns.STARTS_AND_ENDS.negated());
          return null;
        });
    assertThat(runs.why()).isEqualTo("did not end");
    assertThat(said.toString()).contains("did not end");
  }

  @Test
  void theKernelsShipWithTheProgram() throws IOException {
    assertThat(CudaWorker.kernels())
        .contains(".entry nop(", ".entry spin(", ".entry hold(", ".entry nullstore(", "@%p1 bra");
  }

  @Test
  void withoutAGpuItSaysSo() {
    boolean there =
        Fairlead.drivers().stream()
            .filter(driver -> driver.name().equals("cuda"))
            .anyMatch(DriverReport::available);
    assumeTrue(!there, "there is a GPU here");
    CudaSuite suite = new CudaSuite();
    Progress progress = Progress.to(new PrintWriter(new StringWriter()), false);
    assertThatThrownBy(() -> suite.run(new Suite.Options(true, 64), progress))
        .isInstanceOf(DriverUnavailableException.class)
        .hasMessageContaining("'cuda' was asked for and is not available");
  }
}
